import { byId } from "./dom.js";
import { fromBase64 } from "./inflate.js";

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");

export const count = data.tokens.length;
export const depth = data.columns.length;
/** Height of a token's row: as much as a window has room for. */
export const ROW = count <= 22 ? 32 : count <= 40 ? 22 : count <= 120 ? 16 : 12;

/** Shares [n * n], row by row. @param {string} text base64 of 16-bit numbers, little-endian */
function table(text) {
  const bytes = fromBase64(text);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, n) => view.getUint16(2 * n, true) / 65535);
}

export const steps = data.steps.map(table);
export const total = table(data.total);
export const weights = table(data.weights);
