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
  let code = 0;
  let scale = sum(({ bits }, i) => (bits === 8 ? sizes[i] : 0));
  let low = scale + sum(({ bits, shape }) => (bits === 8 ? 4 * shape[0] : 0));
  let high = low + sum(({ bits }, i) => (bits === 16 ? sizes[i] : 0));
  const table = halves();
  const view = new DataView(bytes.buffer);
  /** @type {Map<string, Float32Array>} */
  const found = new Map();
  for (const [n, { name, shape, bits }] of entries.entries()) {
    const values = room(sizes[n]);
    if (bits === 16) {
      for (let i = 0; i < values.length; i++) values[i] = table[bytes[low + i] | (bytes[high + i] << 8)];
      low += values.length;
      high += values.length;
    } else {
      const across = shape[1];
      for (let row = 0; row < shape[0]; row++, scale += 4) {
        const factor = view.getFloat32(scale, true);
        for (let i = row * across; i < (row + 1) * across; i++) values[i] = view.getInt8(code++) * factor;
      }
    }
    found.set(name, values);
  }
  return found;
}
