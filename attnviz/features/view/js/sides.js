import { page } from "./data.js";
import { once, panelOf } from "./panel.js";
import { ends } from "./colors.js";
import { comparisonOf, NAMES } from "./comparison.js";
import { secondOf } from "./second.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Layer} Layer */
/**
 * What is drawn beside each other. Rows and columns that belong together have the same place.
 * @typedef {object} Side
 * @property {string} name `first`, `second` or `difference`
 * @property {Panel} panel
 * @property {State} state what it shows
 * @property {number[] | null} rows the place of each row, -1 for one that no other side has; null: its number
 * @property {number[] | null} columns
 */

export const DIFFERENCE = "difference: the second less the first";

/**
 * What the state shows: one panel, or both sides of a comparison and their difference; and which of
 * them are to be drawn, without the difference where no comparison was asked for.
 * @param {State} state
 */
export function sidesOf(state) {
  const second = secondOf(state);
  const comparison = second && comparisonOf(state, second);
  /** @param {string} name @param {Panel} panel @param {State} one @returns {Side} */
  const side = (name, panel, one) => ({
    name, panel, state: one,
    rows: comparison && places(name, comparison.rows, panel.R), columns: comparison && places(name, comparison.columns, panel.C),
  });
  if (!comparison) {
    const one = side("first", panelOf(state, state.on), state);
    return { comparison, sides: [one], shown: [one] };
  }
  const { states, panels, difference } = comparison;
  const sides = panels.map((panel, n) => side(NAMES[n], panel, states[n]));
  if (difference) sides.push(side("difference", difference, state));
  const one = sides.filter(({ name }) => name === state.sides);
  return { comparison, sides, shown: one.length ? one : state.beside || page.against ? sides : sides.slice(0, 2) };
}

/**
 * Where the rows of a side belong: to each its pair; null where both sides have the same.
 * @param {string} name
 * @param {import("./alignment.js").Alignment} alignment
 * @param {number} count
 */
function places(name, { pairs, left }, count) {
  if (!left) return null;
  const side = NAMES.indexOf(name);
  const out = Array(count).fill(-1);
  pairs.forEach((pair, place) => { out[side < 2 ? pair[side] : place] = place; });
  return out;
}

/**
 * The row of a side that belongs to one of another side, or -1.
 * @param {number} r
 * @param {Side} from
 * @param {Side} to
 */
export function rowIn(r, from, to) {
  return moved(r, from.rows, to.rows, to.panel.R);
}

/** The same of columns. @param {number} c @param {Side} from @param {Side} to */
export function columnIn(c, from, to) {
  return moved(c, from.columns, to.columns, to.panel.C);
}

/** @param {number} i @param {number[] | null} from @param {number[] | null} to @param {number} count */
function moved(i, from, to, count) {
  if (from === to) return i;
  const place = from ? from[i] ?? -1 : i;
  return place < 0 || !to ? (place < count ? place : -1) : to.indexOf(place);
}

/**
 * A difference as two panels' worth of layers without signs: what became more, and what became less.
 * @param {Panel} panel
 * @returns {Panel}
 */
export function parted(panel) {
  const [layer] = panel.layers;
  if (!layer.signed) return panel;
  const [less, , more] = ends();
  /** @param {string} name @param {string} color @param {number} sign @returns {Layer} */
  const part = (name, color, sign) => {
    /** @param {Float32Array} values */
    const kept = (values) => values.map((value) => Math.max(0, sign * value));
    const [low, high] = sign > 0 ? [layer.low, layer.high] : [layer.high, layer.low];
    return { ...layer, name, color, signed: false, data: kept(layer.data), full: layer.top || 1, low: once(() => kept(low())), high: once(() => kept(high())) };
  };
  return { ...panel, layers: [part("more", more, 1), part("less", less, -1)], mixed: "blend" };
}
