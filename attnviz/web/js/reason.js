/**
 * The sources of queries or of keys: kind and name, and what the n-th adds at a position.
 * @typedef {object} Origins
 * @property {[string, string][]} names
 * @property {(n: number, at: number) => ArrayLike<number>} part
 */
/**
 * What the weights of one head on one text are made of: softmax over keys of c tanh(s q·k / c) + b.
 * @typedef {object} Terms
 * @property {number} width of a query
 * @property {number} S keys
 * @property {ArrayLike<number>} queries [T, width], as they meet keys
 * @property {ArrayLike<number>} keys [S, width]
 * @property {number} scale s
 * @property {number | null} softcap c
 * @property {number | null} sink the score of a learned sink that is no key
 * @property {((r: number, c: number) => number) | null} bias b
 * @property {(r: number, c: number) => boolean} allowed whether a query may attend to a key
 * @property {ArrayLike<number>} norms [S], of every key's value, through W_O where `written`
 * @property {boolean} written
 * @property {boolean | null} turned whether queries and keys are turned by their positions
 * @property {number} [off] how far products can be off, where that was measured
 * @property {{ q: ArrayLike<number>, k: ArrayLike<number> } | null} slack how far queries and keys can be off, [width] each; null for not at all
 * @property {{ query: Origins, key: Origins } | null} [origins] what queries and keys were made of, where it is known
 */
/**
 * One weight, taken apart; `off` is how far q·k can be off.
 * @typedef {object} Reason
 * @property {Float64Array} q
 * @property {Float64Array} k
 * @property {Float64Array} products
 * @property {number} dot
 * @property {number} off
 * @property {number} scaled
 * @property {number} capped
 * @property {number} added
 * @property {Float64Array} row scores, -Infinity where blocked
 * @property {number} top
 * @property {Float64Array} powers e^(score - top)
 * @property {number} sinkPower
 * @property {number} total
 * @property {number} weight
 * @property {number} norm
 */

/** @param {ArrayLike<number>} rows @param {number} width @param {number} at */
function vector(rows, width, at) {
  return Float64Array.from({ length: width }, (_, i) => rows[at * width + i]);
}

/**
 * Why query r gives key c its weight, from the head's own numbers.
 * @param {Terms} terms
 * @param {number} r
 * @param {number} c
 * @returns {Reason}
 */
export function reasonOf(terms, r, c) {
  const { width, S, keys, scale, softcap, sink, bias, slack } = terms;
  const [q, k] = [vector(terms.queries, width, r), vector(keys, width, c)];
  const products = q.map((value, i) => value * k[i]);
  const dot = products.reduce((sum, one) => sum + one, 0);
  /** @param {number} score */
  const cap = (score) => (softcap === null ? score : softcap * Math.tanh(score / softcap));
  const row = new Float64Array(S).fill(-Infinity);
  for (let s = 0; s < S; s++) {
    if (!terms.allowed(r, s)) continue;
    let sum = 0;
    for (let i = 0; i < width; i++) sum += q[i] * keys[s * width + i];
    row[s] = cap(scale * sum) + (bias ? bias(r, s) : 0);
  }
  const top = Math.max(sink ?? -Infinity, ...row);
  const powers = row.map((score) => (Number.isFinite(top) ? Math.exp(score - top) : 0));
  const sinkPower = sink === null ? 0 : Math.exp(sink - top);
  const total = powers.reduce((sum, one) => sum + one, sinkPower);
  return {
    q, k, products, dot, scaled: scale * dot, capped: cap(scale * dot), added: bias ? bias(r, c) : 0,
    off: slack ? products.reduce((sum, _, i) => sum + Math.abs(q[i]) * slack.k[i] + Math.abs(k[i]) * slack.q[i], 0) : terms.off ?? 0,
    row, top, powers, sinkPower, total, weight: total ? powers[c] / total : 0, norm: terms.norms[c],
  };
}
