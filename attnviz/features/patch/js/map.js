import { mapCanvas } from "./mapfigure.js";
import { ramp } from "./palette.js";
import { shades } from "./shades.js";

const SIDE = 300;

/**
 * A head's weights on the first clean prompt: queries downwards, keys across.
 * @param {number[][]} pattern
 * @param {string[]} tokens
 * @param {string[]} palette
 */
export function map(pattern, tokens, palette) {
  const rows = tokens.length;
  const pixels = shades({
    values: pattern.flat(), rows, columns: rows, colors: ramp(palette), factor: () => 1, root: true,
    masked: (cell) => cell % rows > Math.trunc(cell / rows),
  });
  return mapCanvas({ rows, columns: rows, pixels, queries: tokens, keys: tokens, side: SIDE }, "attention weights on the first clean prompt");
}
