import { page } from "./data.js";
import { MASKED, maskedColor } from "./masked.js";
import { isDark, ramp, rgb, scheme } from "./palette.js";
import { shades } from "./shades.js";
import { changeColor } from "./signed.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Shade} Shade */

/** Colours of heads shown together, in their order: Okabe and Ito's, each with contrast on light and dark. */
const SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5af0", "#a0522d"];
/** Brighter ones for a dark ground. */
const SERIES_DARK = ["#4aa8ff", "#ff8a3d", "#2fd6a3", "#f2a0cf", "#ffc23d", "#8fd3ff", "#b39dff", "#d99a6c"];

/** @param {number} place */
export function seriesColor(place) {
  const colors = isDark() ? SERIES_DARK : SERIES;
  return colors[place % colors.length];
}

/** The colours of the page around a drawing. */
export function ink() {
  return isDark()
    ? { paper: "#14171c", text: "#e8eaee", soft: "#a3abb8", line: "#39404b", mark: "#ffd166", strong: "#8ec5ff" }
    : { paper: "#ffffff", text: "#16191f", soft: "#5a6270", line: "#d5dae1", mark: "#b34700", strong: "#0b5cad" };
}

/** @type {Map<string, Uint8ClampedArray>} */
const ramps = new Map();

/** A palette's 256 colours, as bytes r, g, b. @param {string} palette */
export function rampOf(palette) {
  const name = palette === "auto" ? (isDark() ? "magma" : "blues") : palette;
  let found = ramps.get(name);
  if (!found) ramps.set(name, found = ramp(page.palettes[name]));
  return found;
}

/**
 * How much of its colour each weight gets: 1 over the weight that counts as full.
 * @param {Shade} layer
 * @param {number} row
 * @param {string} scale `map`: the head's largest; `row`: the row's largest; `one`: 1, or the largest norm
 */
export function unit(layer, row, scale) {
  const top = scale === "one" ? layer.full : scale === "row" ? layer.rowTops[row] : layer.top;
  return top > 0 ? 1 / top : 0;
}

/**
 * The colour of a cell of several maps: the paper pulled towards the colour of the map that leads
 * there, by its share of what counts as full. Colours that add up would be black where two meet.
 * @param {Shade[]} layers
 * @param {number[]} full of each map, see `unit`
 * @param {number} i which cell
 * @param {[number, number, number]} paper
 * @param {[number, number, number][]} colors of the maps
 * @returns {[number, number, number]}
 */
export function led(layers, full, i, paper, colors) {
  let [leader, most] = [0, 0];
  for (let l = 0; l < layers.length; l++) {
    const share = layers[l].data[i] * full[l];
    if (share > most) [leader, most] = [l, share];
  }
  const [share, color] = [Math.min(1, most), colors[leader]];
  return [
    paper[0] + share * (color[0] - paper[0]),
    paper[1] + share * (color[1] - paper[1]),
    paper[2] + share * (color[2] - paper[2]),
  ];
}

/** Colours of less, nothing and more. */
export function ends() {
  return page.signed[scheme()];
}

/** Changes as pixels; see `pixels`. @param {{ R: number, C: number, layers: Shade[] }} panel @param {State} state */
function changes({ R, C, layers: [layer] }, state) {
  const out = new Uint8ClampedArray(4 * R * C);
  const points = ends();
  const colors = Array.from({ length: 511 }, (_, i) => changeColor(points, i / 255 - 1));
  for (let r = 0; r < R; r++) {
    const full = unit(layer, r, state.scale);
    for (let i = r * C; i < (r + 1) * C; i++) {
      out.set(colors[Math.round(255 * (1 + Math.max(-1, Math.min(1, layer.data[i] * full))))], 4 * i);
      out[4 * i + 3] = 255;
    }
  }
  return out;
}

/**
 * Cells as pixels r, g, b, a. One map goes through the palette; of several the one that leads
 * gives the colour; masked cells have a colour of their own.
 * @param {{ R: number, C: number, layers: Shade[], masked: Uint8Array | null }} panel
 * @param {State} state
 */
export function pixels(panel, state) {
  const out = panel.layers[0].signed ? changes(panel, state) : panel.layers.length === 1 ? single(panel, state) : blended(panel, state);
  const { masked } = panel;
  if (masked) {
    const colors = [MASKED.allowed, MASKED.selected].map((kind) => [...rgb(maskedColor(kind)), 255]);
    for (let i = 0; i < masked.length; i++) if (masked[i]) out.set(colors[masked[i] - 1], 4 * i);
  }
  return out;
}

/** One map through the palette. @param {{ R: number, C: number, layers: Shade[] }} panel @param {State} state */
function single({ R, C, layers: [layer] }, state) {
  return shades({ values: layer.data, rows: R, columns: C, colors: rampOf(state.palette), factor: (r) => unit(layer, r, state.scale) });
}

/**
 * Several maps, each in its own colour; see `pixels`.
 * @param {{ R: number, C: number, layers: Shade[] }} panel
 * @param {State} state
 */
function blended({ R, C, layers }, state) {
  const out = new Uint8ClampedArray(4 * R * C);
  const paper = rgb(ink().paper);
  const colors = layers.map(({ color }) => rgb(color));
  for (let r = 0; r < R; r++) {
    const full = layers.map((layer) => unit(layer, r, state.scale));
    for (let i = r * C; i < (r + 1) * C; i++) {
      out.set(led(layers, full, i, paper, colors), 4 * i);
      out[4 * i + 3] = 255;
    }
  }
  return out;
}
