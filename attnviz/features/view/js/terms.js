import { byId } from "./dom.js";
import { inflate } from "./inflate.js";
import { reaches } from "./masked.js";

/** @typedef {import("./types.js").TermsData} TermsData */
/** @typedef {import("./reason.js").Terms} Terms */

const STEPS = 32767;

/** @type {Map<number, Terms>} */
const ready = new Map();
/** @type {Map<number, Promise<void>>} */
const waiting = new Map();

/** What a head's weights are made of, once it is unpacked. @param {TermsData} data */
export function termsOf(data) {
  return ready.get(data.chunk);
}

/**
 * Unpack what a head's weights are made of, once.
 * @param {TermsData} data
 * @param {number} T queries
 * @param {number} S keys
 */
export function loadTerms(data, T, S) {
  let found = waiting.get(data.chunk);
  if (!found) {
    found = inflate(byId(`maps-${data.chunk}`).textContent || "").then((bytes) => { ready.set(data.chunk, unpacked(data, bytes.buffer, T, S)); });
    waiting.set(data.chunk, found);
  }
  return found;
}

/** @param {TermsData} data @param {ArrayBuffer} buffer @param {number} T @param {number} S @returns {Terms} */
function unpacked(data, buffer, T, S) {
  const { width, scale, softcap, sink, written, turned, causal, window } = data;
  let at = 0;
  /** @param {number} count */
  const floats = (count) => { at += 4 * count; return new Float32Array(buffer, at - 4 * count, count); };
  /** @param {number} rows @param {Float32Array} tops */
  const codes = (rows, tops) => {
    const found = new Int16Array(buffer, at, rows * width);
    at += 2 * rows * width;
    return Float64Array.from(found, (code, i) => (code * tops[i % width]) / STEPS);
  };
  const [queryTops, keyTops, norms] = [floats(width), floats(width), floats(S)];
  const numbers = floats({ "": 0, key: S, distance: T + S - 1, whole: T * S }[data.bias]);
  const names = data.origins;
  const tops = [floats(names ? names.query.length : 0), floats(names ? names.key.length : 0)];
  const [queries, keys] = [codes(T, queryTops), codes(S, keyTops)];
  const [ofQuery, ofKey] = tops.map((of, side) => bySource(of, side ? S : T));
  /** What every source adds at a position, [width]. @param {Float32Array} of @param {number} rows */
  function bySource(of, rows) {
    const found = new Int16Array(buffer, at, of.length * rows * width);
    at += 2 * found.length;
    return (/** @type {number} */ n, /** @type {number} */ row) =>
      Float64Array.from(found.subarray((n * rows + row) * width, (n * rows + row + 1) * width), (code) => (code * of[n]) / STEPS);
  }
  const bits = new Uint8Array(buffer, at);
  /** @param {number} r @param {number} c */
  const biased = (r, c) => numbers[{ "": 0, key: c, distance: c - r + T - 1, whole: r * S + c }[data.bias]];
  return {
    width, S, queries, keys, scale, softcap, sink, written, turned, norms,
    bias: data.bias ? biased : null,
    allowed(r, c) {
      if (data.bits) return Boolean((bits[(r * S + c) >> 3] >> (7 - ((r * S + c) & 7))) & 1);
      return reaches({ causal, window }, r + S - T - c);
    },
    origins: names && { query: { names: names.query, part: ofQuery }, key: { names: names.key, part: ofKey } },
    slack: { q: queryTops.map((top) => top / (2 * STEPS)), k: keyTops.map((top) => top / (2 * STEPS)) },
  };
}
