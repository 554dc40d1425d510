import { byId } from "./dom.js";
import { MASKED } from "./masked.js";
import { ramp, readable, scheme } from "./palette.js";
import { shades } from "./shades.js";
import { changeColor } from "./signed.js";

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");

/** The longer side of a map, in CSS pixels. */
export const MAP = 180;

/** What stands in a map for a key that an indexer left out, or that a query may not attend to. */
export const CELLS = { unselected: -1, blocked: -2 };

/** @param {number[]} values */
export function largest(values) {
  return values.reduce((found, value) => Math.max(found, Math.abs(value)), 0);
}

/** A ground and an ink that reads on it, by a share of the largest, from -1 to 1. @param {number} share */
export function tintOf(share) {
  return readable(changeColor(data.signed[scheme()], Math.sign(share) * Math.sqrt(Math.abs(share))));
}

/** The same of a weight, as in maps. @param {number} weight */
export function shadeOf(weight) {
  const step = 3 * Math.round(255 * Math.sqrt(Math.min(Math.max(weight, 0), 1)));
  return readable([...ramp(data.palette).slice(step, step + 3)]);
}

/** A head's map: queries downwards, keys across. @param {import("./types.js").Head} head */
export function mapOf(head) {
  const [rows, columns] = [head.map.length, head.tokens.length];
  const pixels = shades({
    values: head.map.flat(), rows, columns, colors: ramp(data.palette), factor: () => 1, root: true,
    masked: (cell) => {
      const weight = head.map[Math.trunc(cell / columns)][cell % columns];
      return weight === CELLS.unselected ? MASKED.selected : weight === CELLS.blocked ? MASKED.allowed : 0;
    },
  });
  const queries = head.query === null ? head.tokens : data.tokens;
  return { rows, columns, pixels, queries, keys: head.tokens, side: MAP, marked: head.query ?? undefined };
}
