import { byId } from "./dom.js";
import { ramp, readable } from "./palette.js";

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");

const colors = ramp(data.palette);

/** @param {import("./types.js").Place} place */
export function cellAt({ layer, column }) {
  return data.cells[layer * data.tokens.length + column];
}

/** The colour of a probability, and black or white, whichever reads better on it. @param {number} share */
export function paint(share) {
  const at = 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
  return readable([...colors.slice(at, at + 3)]);
}

/** A layer in words. @param {number} layer */
export function behind(layer) {
  return layer ? `after layer ${data.layers[layer]}` : "the embeddings";
}

/** A position in words. @param {number} column */
export function where(column) {
  return `${data.masked ? "at" : "after"} ${data.tokens[column]} (${data.positions[column]})`;
}
