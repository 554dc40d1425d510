import { headOf, headsOf, kindOf, page } from "./data.js";
import { toDecimals } from "./numbers.js";
import { axesOf, matrix } from "./panel.js";
import { alignment } from "./comparison.js";

/** Decimals of distances, which lie between 0 and 1. */
const DECIMALS = 3;

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./alignment.js").Alignment} Alignment */
/**
 * How far a head's rows are apart on both sides: their mean distance and its bounds, in words, and the
 * row where it is largest, as a number of both axes, with that distance in words.
 * @typedef {{ head: Head, other: Head, value: number, low: number, high: number, said: string, rows: number, row: [number, number], largest: string, gained: string[], lost: string[] }} Changed
 */

/**
 * Rows as distributions: each weight times its factor, and what a row lacks to 1 as one key more.
 * @typedef {object} Rows
 * @property {Float32Array} data
 * @property {number} C
 * @property {(row: number) => { factor: number, error: number }} scaled the factor of a row, and how far rounding can move it
 */

/**
 * A row of codes is off by at most half a step for each weight, as roots: √(S·m)/(2n) in all, for S keys
 * and a largest weight of m. The distance moves by no more: it is a metric, and at most that of the
 * roots of two rows (Topsøe 2000; Endres & Schindelin 2003).
 * @param {State} state
 * @param {Head} head
 * @returns {Rows}
 */
function rowsOf(state, head) {
  const { queries, keys } = axesOf(state);
  const [C, data] = [keys.at.length, matrix(state, head)];
  const tokens = keys.to[C - 1];
  const steps = 2 * (2 ** page.bits - 1);
  const whole = head.data.whole || kindOf(state).quantity !== "weights";
  return {
    data, C,
    scaled(r) {
      let sum = 0;
      for (let i = r * C; i < (r + 1) * C; i++) sum += data[i];
      const seen = head.site.causal ? queries.to[r] : tokens;
      const error = Math.sqrt(seen * head.data.top) / steps;
      if (!sum) return { factor: 0, error: 0 };
      if (head.data.whole) return { factor: 1 / sum, error: error + Math.abs(1 - Math.sqrt(sum)) };
      // norms have no sum of their own; a learned sink takes what is left of it
      return whole ? { factor: 1 / sum, error: (2 * error) / Math.sqrt(sum) } : { factor: 1, error: Math.hypot(error, Math.sqrt(2 * error * Math.sqrt(sum))) };
    },
  };
}

/** @param {number} p @param {number} q */
function part(p, q) {
  if (p === q) return 0;
  const middle = (p + q) / 2;
  return (p && p * Math.log2(p / middle)) + (q && q * Math.log2(q / middle));
}

/**
 * The Jensen-Shannon distance of two rows: the root of the divergence in bits, from 0 to 1.
 * @param {Rows} one
 * @param {Rows} other
 * @param {number} i a row of the one, @param {number} j of the other
 * @param {number} j
 * @param {[number, number][]} columns that belong together; what is in none is one key more
 * @param {number} f what the one's weights are multiplied by
 * @param {number} g
 */
function distance(one, other, i, j, columns, f, g) {
  let [sum, restP, restQ] = [0, 1, 1];
  for (const [k, l] of columns) {
    const [p, q] = [f * one.data[i * one.C + k], g * other.data[j * other.C + l]];
    sum += part(p, q);
    restP -= p;
    restQ -= q;
  }
  // the rest of a row that was divided by its sum is a rounding error, unless a key has no counterpart
  sum += part(restP > 1e-6 ? restP : 0, restQ > 1e-6 ? restQ : 0);
  return Math.sqrt(Math.min(1, Math.max(0, sum / 2)));
}

/**
 * @param {[State, State]} states
 * @param {Head} head
 * @param {Head} other
 * @param {Alignment} rows
 * @param {Alignment} columns
 * @returns {Changed | null}
 */
function changeOf(states, head, other, rows, columns) {
  const [one, two] = [rowsOf(states[0], head), rowsOf(states[1], other)];
  let [total, off, count, most] = [0, 0, 0, -1];
  /** @type {[number, number]} */
  let row = [0, 0];
  let largest = "";
  for (const [i, j] of rows.pairs) {
    const [a, b] = [one.scaled(i), two.scaled(j)];
    if (!a.factor && !b.factor) continue;
    const far = distance(one, two, i, j, columns.pairs, a.factor, b.factor);
    total += far;
    off += a.error + b.error;
    count++;
    if (far > most) {
      [most, row] = [far, [i, j]];
      largest = toDecimals(Math.max(0, far - a.error - b.error), far, Math.min(1, far + a.error + b.error), DECIMALS);
    }
  }
  if (!count) return null;
  const value = total / count;
  const [low, high] = [Math.max(0, value - off / count), Math.min(1, value + off / count)];
  /** @param {Head} from @param {Head} to */
  const lacking = (from, to) => from.data.roles.filter(({ name }) => !to.data.roles.some((role) => role.name === name)).map(({ title }) => title);
  return { head, other, value, low, high, said: toDecimals(low, value, high, DECIMALS), rows: count, row, largest, gained: lacking(other, head), lost: lacking(head, other) };
}

/** The whole of both texts: what is hidden or rescaled changes nothing here. @param {[State, State]} states @returns {[State, State]} */
export function wholeTexts(states) {
  const [one, other] = states.map((state) => ({ ...state, separators: false, first: false, rescale: false, quad: "all" }));
  return [one, other];
}

/**
 * Every head that both sides have, layer by layer, by how far its rows are apart; both sides are unpacked.
 * @param {[State, State]} states whole texts
 * @returns {Generator<Changed[]>} those of a layer
 */
export function* changes(states) {
  const [one, other] = states.map(axesOf);
  const rows = alignment(states, one.queries, other.queries);
  const columns = one.queries === one.keys && other.queries === other.keys ? rows : alignment(states, one.keys, other.keys);
  for (const site of kindOf(states[0]).sites) {
    yield headsOf(states[0]).filter((head) => head.site === site).flatMap((head) => {
      const same = headOf(states[1], head.id);
      return (same && changeOf(states, head, same, rows, columns)) || [];
    });
  }
}
