import { crc32 } from "./pngchunks.js";

/**
 * @typedef {object} NumpyArray an array as NumPy stores it
 * @property {string} descr its type: `<f4`, `<i8`, `|b1` or `<U12`
 * @property {number[]} shape
 * @property {Uint8Array<ArrayBuffer>} bytes
 */

const encoder = new TextEncoder();

/** @param {Float32Array<ArrayBuffer>} values @param {number[]} shape @returns {NumpyArray} */
export function floats(values, shape) {
  return { descr: "<f4", shape, bytes: new Uint8Array(values.buffer) };
}

/** @param {number[]} values @returns {NumpyArray} */
export function integers(values) {
  return { descr: "<i8", shape: [values.length], bytes: new Uint8Array(BigInt64Array.from(values, BigInt).buffer) };
}

/** @param {number[]} values @returns {NumpyArray} */
export function booleans(values) {
  return { descr: "|b1", shape: [values.length], bytes: Uint8Array.from(values) };
}

/** @param {Uint8Array[]} parts one after the other @returns {NumpyArray} */
export function byteArray(parts) {
  const bytes = Uint8Array.from(parts.flatMap((part) => [...part]));
  return { descr: "|u1", shape: [bytes.length], bytes };
}

/**
 * Texts of one length in code points, as NumPy has them.
 * @param {string[]} values
 * @param {number[]} shape
 * @returns {NumpyArray}
 */
export function texts(values, shape) {
  const points = values.map((value) => Array.from(value, (char) => /** @type {number} */ (char.codePointAt(0))));
  const wide = Math.max(1, ...points.map(({ length }) => length));
  const out = new Uint32Array(values.length * wide);
  points.forEach((line, i) => out.set(line, i * wide));
  return { descr: `<U${wide}`, shape, bytes: new Uint8Array(out.buffer) };
}

/** A .npy file (format 1.0): magic, the length of the header, the header, the array. @param {NumpyArray} array */
function npy({ descr, shape, bytes }) {
  const tuple = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${tuple}, }`;
  const header = encoder.encode(`${text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11)}\n`);
  const out = new Uint8Array(10 + header.length + bytes.length);
  out.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  out.set(header, 10);
  out.set(bytes, 10 + header.length);
  return out;
}

/** Numbers of 2 or 4 bytes, little end first. @param {[number, number][]} fields size and value */
function packed(fields) {
  const out = new Uint8Array(fields.reduce((sum, [size]) => sum + size, 0));
  const view = new DataView(out.buffer);
  let at = 0;
  for (const [size, value] of fields) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return out;
}

/**
 * A .npz file: a deflated .npy file for each array, as `numpy.savez_compressed` writes them.
 * @param {Record<string, NumpyArray>} arrays
 */
export async function npz(arrays) {
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const files = [];
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const directory = [];
  let [at, listed] = [0, 0];
  for (const [key, array] of Object.entries(arrays)) {
    const raw = npy(array);
    const stream = new Blob([raw]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    const body = new Uint8Array(await new Response(stream).arrayBuffer());
    const name = encoder.encode(`${key}.npy`);
    // version 2.0, deflated, the first day that a zip file can name
    /** @type {[number, number][]} */
    const facts = [[2, 20], [2, 0x800], [2, 8], [2, 0], [2, 0x21], [4, crc32(raw)], [4, body.length], [4, raw.length], [2, name.length], [2, 0]];
    const local = packed([[4, 0x04034b50], ...facts]);
    const central = packed([[4, 0x02014b50], [2, 20], ...facts, [2, 0], [2, 0], [2, 0], [4, 0], [4, at]]);
    files.push(local, name, body);
    directory.push(central, name);
    at += local.length + name.length + body.length;
    listed += central.length + name.length;
  }
  const count = Object.keys(arrays).length;
  const end = packed([[4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, listed], [4, at], [2, 0]]);
  return new Blob([...files, ...directory, end], { type: "application/octet-stream" });
}
