import { inflate } from "./inflate.js";
import { room } from "./kernel.js";

/** @typedef {import("./types.js").Entry} Entry */

/** What each half-precision number is, by its bits. */
function halves() {
  const table = new Float32Array(65536);
  for (let code = 0; code < 65536; code++) {
    const [sign, power, part] = [code & 0x8000 ? -1 : 1, (code >> 10) & 31, code & 1023];
    if (power === 31) table[code] = part ? NaN : sign * Infinity;
    else table[code] = sign * (power ? 2 ** (power - 15) * (1 + part / 1024) : 2 ** -14 * (part / 1024));
  }
  return table;
}

/** Numbers of a row that share a scale, where rows are cut up without a rest. */
const BLOCK = 64;

/** How many numbers of an array share a scale. @param {Entry} entry */
function together({ shape }) {
  return shape[1] % BLOCK ? shape[1] : BLOCK;
}

/**
 * The arrays of a network; see pack.py for how they lie.
 * @param {Entry[]} entries
 * @param {string} text
 * @returns {Promise<Map<string, Float32Array>>}
 */
export async function unpack(entries, text) {
  const bytes = await inflate(text);
  const sizes = entries.map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  const sum = (/** @type {(entry: Entry, i: number) => number} */ of) => entries.reduce((total, entry, i) => total + of(entry, i), 0);
  const scales = sum((entry, i) => (entry.bits === 8 ? sizes[i] / together(entry) : 0));
  const halved = scales + sum(({ bits }, i) => (bits === 16 ? sizes[i] : 0));
  const start = sum(({ bits }, i) => (bits === 8 ? sizes[i] : 0));
  const table = halves();
  /** A half, by its number among all. @param {number} n */
  const half = (n) => table[bytes[start + n] | (bytes[start + halved + n] << 8)];
  const codes = new Int8Array(bytes.buffer, bytes.byteOffset, start);
  let [code, scale, next] = [0, 0, scales];
  /** @type {Map<string, Float32Array>} */
  const found = new Map();
  for (const [n, entry] of entries.entries()) {
    const values = room(sizes[n]);
    if (entry.bits === 16) for (let i = 0; i < values.length; i++) values[i] = half(next++);
    else {
      const block = together(entry);
      for (let from = 0; from < values.length; from += block) {
        const factor = half(scale++);
        for (let i = from; i < from + block; i++) values[i] = codes[code++] * factor;
      }
    }
    found.set(entry.name, values);
  }
  return found;
}
