import { reasonOf } from "./reason.js";

/** @typedef {import("./reason.js").Terms} Terms */

/**
 * The way of one row through its head.
 * @typedef {object} RowPath
 * @property {Float64Array} q [width]
 * @property {Float64Array} dots q·k of every key, also of those that the mask takes away, [S]
 * @property {Float64Array} scores times the scale, -Infinity where masked
 * @property {Float64Array} weights their softmax
 * @property {number} top the largest score, and the sum of all e^(score - top)
 * @property {number} total
 * @property {Float64Array} mixed the sum of all values by their weights, [width]
 */

/**
 * From a query and the keys to what the head hands to W_O: softmax(s q·k) v, in double precision.
 * @param {Terms} terms
 * @param {ArrayLike<number>} values [S, width]
 * @param {number} r the row's query
 * @returns {RowPath}
 */
export function pathOf(terms, values, r) {
  const { width, S, keys } = terms;
  const { q, row, powers, top, total } = reasonOf(terms, r, r);
  const weights = powers.map((power) => (total ? power / total : 0));
  const [dots, mixed] = [new Float64Array(S), new Float64Array(width)];
  for (let s = 0; s < S; s++) {
    for (let i = 0; i < width; i++) {
      dots[s] += q[i] * keys[s * width + i];
      mixed[i] += weights[s] * values[s * width + i];
    }
  }
  return { q, dots, scores: row, weights, top, total, mixed };
}

/**
 * Which keys of a row are drawn, in their order: those with the largest weights and the one that is
 * asked about, then the first of those that are masked; and which are not, of those allowed.
 * @param {RowPath} path
 * @param {number} asked
 * @param {number} most keys that are allowed
 * @param {number} masked keys that are not
 */
export function listedKeys({ scores, weights }, asked, most, masked) {
  const places = [...scores.keys()];
  const open = places.filter((s) => scores[s] > -Infinity);
  const chosen = new Set([...open].sort((a, b) => weights[b] - weights[a]).slice(0, most)).add(asked);
  const blocked = places.filter((s) => scores[s] === -Infinity);
  const barred = new Set(blocked.slice(0, masked)).add(asked);
  return {
    listed: [...open.filter((s) => chosen.has(s)), ...blocked.filter((s) => barred.has(s))],
    rest: open.filter((s) => !chosen.has(s)),
    blocked: blocked.length,
  };
}
