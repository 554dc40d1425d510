/** β of the queries, large enough that softmax all but picks a key; how many tokens there are. */
const [QUERY, TOKENS] = [20, 4];
/** Standard deviations on either side, and steps of the sum that stands for the integral. */
const [SIDE, STEPS] = [8, 4000];

/**
 * How much the outputs have of the first of four values. Keys are at right angles and of length 1, but
 * for the first: one head asks for the first two at once; of two heads, whose outputs are averaged, each
 * asks for one of them (Stanford CS224N, the assignment on self-attention).
 * @param {number} length of the first key
 * @returns {[number, number]} of one head, of two
 */
export function firstShares(length) {
  const [first, others] = [Math.exp(QUERY * (length - 1)), Math.exp(-QUERY)];
  const one = first / (first + 1 + (TOKENS - 2) * others);
  const two = first / (first + (TOKENS - 1) * others) + others / (1 + (TOKENS - 1) * others);
  return [one, two / 2];
}

/**
 * Mean, standard deviation and histogram of both, where the length is normal with mean 1: integrals as
 * sums over a grid, which for so smooth a function are exact beyond all digits that are shown.
 * @param {number} variance of the length
 * @param {number} [bins] of the histogram, from 0 to 1
 * @returns {{ mean: number, spread: number, shares: number[] }[]} of one head, of two
 */
export function outputs(variance, bins = 25) {
  const found = [0, 1].map(() => ({ sum: 0, squares: 0, shares: new Array(bins).fill(0) }));
  let whole = 0;
  for (let n = 0; n <= STEPS; n++) {
    const at = SIDE * ((2 * n) / STEPS - 1);
    const density = Math.exp((-at * at) / 2);
    whole += density;
    firstShares(1 + Math.sqrt(variance) * at).forEach((share, heads) => {
      const one = found[heads];
      one.sum += density * share;
      // the mean is near 1/2, so squares around it lose no digits
      one.squares += density * (share - 0.5) ** 2;
      one.shares[Math.min(bins - 1, Math.floor(share * bins))] += density;
    });
  }
  return found.map(({ sum, squares, shares }) => {
    const mean = sum / whole;
    return { mean, spread: Math.sqrt(Math.max(0, squares / whole - (mean - 0.5) ** 2)), shares: shares.map((share) => share / whole) };
  });
}
