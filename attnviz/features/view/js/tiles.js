import { axesOf, bothMasked, fullOf, maskedOf, matrix } from "./panel.js";
import { MASKED } from "./masked.js";
import { pixels } from "./colors.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */

/**
 * A map with at most so many rows and columns: each cell is the largest of those it stands for, whatever
 * its sign.
 * @param {Float32Array} data
 * @param {number} R
 * @param {number} C
 * @param {number} rows
 * @param {number} columns
 * @returns {{ data: Float32Array, R: number, C: number }}
 */
export function binned(data, R, C, rows, columns) {
  const [down, across] = [Math.ceil(R / Math.max(1, rows)), Math.ceil(C / Math.max(1, columns))];
  if (down <= 1 && across <= 1) return { data, R, C };
  const [r2, c2] = [Math.ceil(R / down), Math.ceil(C / across)];
  const out = new Float32Array(r2 * c2);
  for (let r = 0; r < R; r++) {
    const to = Math.trunc(r / down) * c2;
    for (let c = 0, i = r * C, place = to; c < C; place++) {
      const end = Math.min(c + across, C);
      let most = out[place];
      for (; c < end; c++, i++) if (Math.abs(data[i]) > Math.abs(most)) most = data[i];
      out[place] = most;
    }
  }
  return { data: out, R: r2, C: c2 };
}

/**
 * The cells of a smaller map that stand for none but masked ones; see `binned`.
 * @param {Uint8Array | null} masked
 * @param {number} R
 * @param {number} C
 * @param {number} rows
 * @param {number} columns
 */
export function binnedMask(masked, R, C, rows, columns) {
  const [down, across] = [Math.ceil(R / Math.max(1, rows)), Math.ceil(C / Math.max(1, columns))];
  if (!masked || (down <= 1 && across <= 1)) return masked;
  const c2 = Math.ceil(C / across);
  const out = new Uint8Array(Math.ceil(R / down) * c2).fill(MASKED.allowed);
  for (let r = 0; r < R; r++) {
    for (let c = 0; c < C; c++) {
      const at = Math.trunc(r / down) * c2 + Math.trunc(c / across);
      out[at] = bothMasked(masked[r * C + c], out[at]);
    }
  }
  return out;
}

/**
 * One head's map, small. Coloured by its largest weight, it goes by the square root, so that small
 * weights show at a glance.
 * @param {State} state
 * @param {Head} head whose layer is loaded
 * @param {number} most rows and columns
 */
export function tile(state, head, most) {
  const { queries, keys } = axesOf(state);
  const small = binned(matrix(state, head), queries.at.length, keys.at.length, most, most);
  const rowTops = new Float32Array(small.R);
  let top = 0;
  for (let r = 0; r < small.R; r++) {
    for (let i = r * small.C; i < (r + 1) * small.C; i++) rowTops[r] = Math.max(rowTops[r], small.data[i]);
    top = Math.max(top, rowTops[r]);
  }
  if (state.scale === "map" && top > 0) {
    small.data = small.data.map((weight) => Math.sqrt(weight * top));
    for (let r = 0; r < small.R; r++) rowTops[r] = Math.sqrt(rowTops[r] * top);
  }
  const layers = [{ color: "", data: small.data, top, rowTops, full: fullOf(state) }];
  const masked = binnedMask(maskedOf(state, [head]), queries.at.length, keys.at.length, most, most);
  return { colors: pixels({ R: small.R, C: small.C, layers, masked }, state), R: small.R, C: small.C };
}
