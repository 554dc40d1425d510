import { MASKED, maskedColor } from "./masked.js";
import { rgb } from "./palette.js";

/**
 * A map to be coloured: `rows` by `columns` of `values` from `from` on.
 * @typedef {object} Shaded
 * @property {ArrayLike<number>} values
 * @property {number} rows
 * @property {number} columns
 * @property {number} [from]
 * @property {Uint8ClampedArray} colors 256 of them, as bytes r, g, b
 * @property {(row: number) => number} factor 1 over the weight that gets the full colour
 * @property {boolean} [root] whether colours go by the square root, so that small weights show
 * @property {((cell: number) => boolean | number | undefined) | null} [masked] whether the query may not attend to the key, or how as `MASKED` says
 */

/** A map as pixels r, g, b, a: the one way in which all pages colour weights. @param {Shaded} map */
export function shades({ values, rows, columns, from = 0, colors, factor, root = false, masked = null }) {
  const out = new Uint8ClampedArray(4 * rows * columns);
  const off = [null, rgb(maskedColor()), rgb(maskedColor(MASKED.selected))]; // by `MASKED`
  for (let r = 0, i = 0; r < rows; r++) {
    const full = factor(r);
    for (let c = 0; c < columns; c++, i++) {
      const share = Math.min(1, Math.max(0, values[from + i] * full));
      const step = 3 * Math.round(255 * (root ? Math.sqrt(share) : share));
      const hidden = off[Number(masked?.(i) ?? 0)];
      out[4 * i] = hidden ? hidden[0] : colors[step];
      out[4 * i + 1] = hidden ? hidden[1] : colors[step + 1];
      out[4 * i + 2] = hidden ? hidden[2] : colors[step + 2];
      out[4 * i + 3] = 255;
    }
  }
  return out;
}
