const STEP = 0x6d2b79f5;

/**
 * The n-th number of mulberry32, from 0 up to but not 1, whose state moves by a constant step: so a
 * token drawn at a place is the same, whether those before it were written at once or one by one.
 * @param {number} seed
 * @param {number} n
 */
export function chance(seed, n) {
  let a = (seed + Math.imul(n + 1, STEP)) | 0;
  a = Math.imul(a ^ (a >>> 15), a | 1);
  a ^= a + Math.imul(a ^ (a >>> 7), a | 61);
  return ((a ^ (a >>> 14)) >>> 0) / 2 ** 32;
}
