/**
 * Which entries of two sequences belong together.
 * @typedef {object} Alignment
 * @property {[number, number][]} pairs in order
 * @property {number} same how many of them are the same token
 * @property {number} left entries of either sequence that are in no pair
 */

/** Sequences of other lengths with a smaller share of common entries are not laid side by side. */
const LEAST_COMMON = 0.5;

/**
 * The shortest edit from one sequence to the other (Levenshtein 1966): equal entries belong
 * together, and so do those that replace each other.
 * @param {string[]} one
 * @param {string[]} other
 * @returns {Alignment}
 */
export function aligned(one, other) {
  const [m, n] = [one.length, other.length];
  const wide = n + 1;
  const costs = new Uint32Array((m + 1) * wide);
  for (let j = 0; j <= n; j++) costs[j] = j;
  for (let i = 1; i <= m; i++) {
    costs[i * wide] = i;
    for (let j = 1; j <= n; j++) {
      const at = i * wide + j;
      const replaced = costs[at - wide - 1] + Number(one[i - 1] !== other[j - 1]);
      costs[at] = Math.min(replaced, costs[at - wide] + 1, costs[at - 1] + 1);
    }
  }
  /** @type {[number, number][]} */
  const pairs = [];
  let [i, j, same] = [m, n, 0];
  while (i && j) {
    const at = i * wide + j;
    const equal = one[i - 1] === other[j - 1];
    if (costs[at] === costs[at - wide - 1] + Number(!equal)) {
      pairs.push([--i, --j]);
      same += Number(equal);
    } else if (costs[at] === costs[at - wide] + 1) i--;
    else j--;
  }
  return { pairs: pairs.reverse(), same, left: m + n - 2 * pairs.length };
}

/**
 * Why two sequences cannot be laid side by side, or nothing. Those of the same length always can.
 * @param {Alignment} found
 * @param {number} longer the length of the longer one
 */
export function refusal({ same, left }, longer) {
  return left && same < LEAST_COMMON * longer ? `only ${same} of ${longer} are the same` : "";
}
