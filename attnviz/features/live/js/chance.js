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

/** Probabilities. @param {Float32Array} logits */
export function shares(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = logits.map((logit) => Math.exp(logit - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}

/**
 * Of probabilities those of the likeliest tokens alone, as shares of what these have together (top-k
 * and then top-p: Fan et al. 2018, arXiv:1805.04833; Holtzman et al. 2019, arXiv:1904.09751).
 * @param {Float32Array} found
 * @param {number} most tokens; 0: as many as there are
 * @param {number} together the fewest that have this share of what `most` leaves; 1: all of them
 */
export function likeliest(found, most, together) {
  if (!most && together >= 1) return found;
  const order = [...found.keys()].sort((a, b) => found[b] - found[a]).slice(0, most || found.length);
  const whole = order.reduce((sum, id) => sum + found[id], 0);
  const left = new Float32Array(found.length);
  let sum = 0;
  for (const id of order) {
    if (sum >= together * whole) break;
    left[id] = found[id];
    sum += found[id];
  }
  return left.map((share) => share / sum);
}

/** The ids of the largest. @param {Float32Array} values @param {number} count */
export function best(values, count) {
  /** @type {number[]} */
  const found = [];
  for (let id = 0; id < values.length; id++) {
    if (found.length === count && values[id] <= values[found[count - 1]]) continue;
    let place = found.length;
    while (place && values[found[place - 1]] < values[id]) place--;
    found.splice(place, 0, id);
    if (found.length > count) found.pop();
  }
  return found;
}
