import { byId } from "./dom.js";
import { fromBase64 } from "./inflate.js";

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");

/** The values of a map, row by row. @param {string} packed base64 of float32, little-endian */
export function unpacked(packed) {
  return new Float32Array(fromBase64(packed).buffer);
}

/** Which cells are masked, by packed bits in base64; nothing for none. @param {string} packed @param {number} count */
export function bits(packed, count) {
  if (!packed) return null;
  const bytes = fromBase64(packed);
  return Uint8Array.from({ length: count }, (_, i) => (bytes[i >> 3] >> (7 - (i & 7))) & 1);
}
