import { itemOf, kindOf, page, several, titleOf } from "./data.js";
import { withError } from "./numbers.js";
import { allowedText, bothMasked, once, panelOf, precision, saidOf } from "./panel.js";
import { aligned, refusal } from "./alignment.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./alignment.js").Alignment} Alignment */
/**
 * @typedef {object} Comparison
 * @property {[State, State]} states
 * @property {[Panel, Panel]} panels
 * @property {Alignment} rows
 * @property {Alignment} columns
 * @property {string} refused why there is no difference
 * @property {Panel | null} difference the second less the first
 */

/** What is drawn beside each other, or stands in a table. */
export const NAMES = ["first", "second", "difference"];
/** So many tokens that differ are named. */
const MOST_NAMED = 3;
/** So much of a text tells it from another one. */
const LONGEST_NAME = 32;

/** What two sequences are compared by: tokens of one model as they are, those of two without their marks. @param {State[]} states */
function spelling(states) {
  // a capture's model is followed by its file
  const [one, other] = states.map((state) => itemOf(state).model.replace(/ \([^()]*\)$/, ""));
  return one === other ? "labels" : "inline";
}

/**
 * The entries of two axes that belong together.
 * @param {[State, State]} states
 * @param {Axis} one
 * @param {Axis} other
 * @returns {Alignment}
 */
export function alignment(states, one, other) {
  const by = spelling(states);
  if (one === other) return { pairs: one.labels.map((_, i) => [i, i]), same: one.labels.length, left: 0 };
  return aligned(one[by], other[by]);
}

/**
 * Both sides of a comparison, row by row, and what changed from one to the other.
 * @param {State} state
 * @param {State} second
 * @returns {Comparison}
 */
export function comparisonOf(state, second) {
  const several = Math.max(state.on.length, second.on.length) > 1;
  /** @param {State} one @returns {State} */
  const single = (one) => (several && one.mix === "blend" ? { ...one, mix: "mean" } : one);
  /** @type {[State, State]} */
  const states = [single(state), single(second)];
  const [one, other] = states.map((side) => panelOf(side, side.on));
  const rows = alignment(states, one.queries, other.queries);
  const same = one.queries === one.keys && other.queries === other.keys;
  const columns = same ? rows : alignment(states, one.keys, other.keys);
  const refused = refusalOf(states, [one, other], rows, columns);
  const error = states.reduce((sum, side) => sum + kindOf(side).error, 0);
  const difference = refused || !rows.pairs.length || !columns.pairs.length ? null : subtracted(one, other, rows, columns, error);
  return { states, panels: [one, other], rows, columns, refused, difference };
}

/** @param {[State, State]} states @param {[Panel, Panel]} panels @param {Alignment} rows @param {Alignment} columns */
function refusalOf(states, [one, other], rows, columns) {
  if (one.noun !== other.noun) return `No difference: one side shows ${one.noun}, the other ${other.noun}.`;
  if (states[0].kind !== states[1].kind) return `No difference: one side is ${states[0].kind} attention, the other ${states[1].kind}.`;
  const why = refusal(rows, Math.max(one.R, other.R)) || refusal(columns, Math.max(one.C, other.C));
  const unit = states[0].words ? "words" : "tokens";
  return why && `No difference: the texts cannot be aligned, ${why} ${unit}${unit === "tokens" ? "; try words" : ""}.`;
}

/**
 * The second map less the first, over what belongs together.
 * @param {Panel} one
 * @param {Panel} other
 * @param {Alignment} rows
 * @param {Alignment} columns
 * @param {number} error how far a difference can be off
 * @returns {Panel}
 */
function subtracted(one, other, rows, columns, error) {
  const queries = taken(one.queries, other.queries, rows);
  const keys = columns === rows && one.queries === one.keys ? queries : taken(one.keys, other.keys, columns);
  const [R, C] = [rows.pairs.length, columns.pairs.length];
  /** @param {Float32Array} minuend @param {Float32Array} subtrahend */
  const less = (minuend, subtrahend) => {
    const out = new Float32Array(R * C);
    rows.pairs.forEach(([i, j], r) => columns.pairs.forEach(([k, l], c) => { out[r * C + c] = minuend[j * other.C + l] - subtrahend[i * one.C + k]; }));
    return out;
  };
  const [a, b] = [one.layers[0], other.layers[0]];
  const data = less(b.data, a.data);
  const rowTops = Float32Array.from({ length: R }, (_, r) => data.subarray(r * C, (r + 1) * C).reduce((most, value) => Math.max(most, Math.abs(value)), 0));
  // what rounding alone can make is never shown in full colour
  const top = rowTops.reduce((most, value) => Math.max(most, value), error);
  const layer = {
    name: "difference", color: "", data, top, rowTops, full: Math.max(a.full, b.full), whole: a.whole && b.whole && !columns.left, signed: true,
    low: once(() => less(b.low(), a.high())), high: once(() => less(b.high(), a.low())),
  };
  return { queries, keys, R, C, layers: [layer], mixed: "single", cut: one.cut || other.cut, rescaled: one.rescaled, noun: "difference", masked: maskedInBoth(one, other, rows, columns) };
}

/**
 * The cells that are masked on both sides.
 * @param {Panel} one
 * @param {Panel} other
 * @param {Alignment} rows
 * @param {Alignment} columns
 */
function maskedInBoth(one, other, rows, columns) {
  const [a, b] = [one.masked, other.masked];
  if (!a || !b) return null;
  return Uint8Array.from(rows.pairs.flatMap(([i, j]) => columns.pairs.map(([k, l]) => bothMasked(a[i * one.C + k], b[j * other.C + l]))));
}

/**
 * The entries of an axis that have a counterpart, named by both where they differ.
 * @param {Axis} one
 * @param {Axis} other
 * @param {Alignment} alignment
 * @returns {Axis}
 */
function taken(one, other, { pairs }) {
  if (one === other) return one;
  /** @type {any} */
  const out = {};
  for (const name of /** @type {(keyof Axis)[]} */ (Object.keys(one))) out[name] = pairs.map(([i]) => one[name][i]);
  for (const name of /** @type {const} */ (["labels", "named", "spoken", "rows"])) {
    out[name] = pairs.map(([i, j]) => (one.labels[i] === other.labels[j] ? one[name][i] : `${one[name][i]} / ${other[name][j]}`));
  }
  return out;
}

/** How the two sides were laid beside each other. @param {Comparison} found */
export function alignmentSaid({ states, panels: [one, other], rows, columns, refused }) {
  if (refused) return refused;
  if (one.queries === other.queries && one.keys === other.keys) return "";
  const unit = states[0].words ? "word" : "token";
  const parts = [said(one.queries, other.queries, rows, unit)];
  if (columns !== rows) parts.push(`keys: ${said(one.keys, other.keys, columns, unit)}`);
  return `Laid side by side by ${parts.join("; ")}.`;
}

/** @param {Axis} one @param {Axis} other @param {Alignment} alignment @param {string} unit */
function said(one, other, { pairs, same, left }, unit) {
  const differing = pairs.filter(([i, j]) => one.labels[i] !== other.labels[j]);
  const named = differing.slice(0, MOST_NAMED).map(([i, j]) => `${one.named[i]} / ${other.named[j]}`).join(", ");
  const more = differing.length > MOST_NAMED ? ", …" : "";
  if (!left && !differing.length) return `${unit}: all ${pairs.length} are the same`;
  const parts = [`${unit}: ${same} are the same`];
  if (pairs.length > same) parts.push(`by position where they differ: ${pairs.length - same} (${named}${more})`);
  if (left) parts.push(`${left} of one side alone, not in the difference`);
  return parts.join(", ");
}

/** What tells one side from the other, in few words. @param {State[]} states @param {number} side */
export function sideName(states, side) {
  const state = states[side];
  const heads = state.on.length === 1 ? titleOf(state, state.on[0]) : `${state.mix === "max" ? "maximum" : "mean"} of ${several(state, state.on.length)}`;
  if (states[0].text === states[1].text) return heads;
  const [one, other] = states.map(({ text }) => page.items[text]);
  if (one.label === other.label && one.run !== other.run) return `${heads}, ${[one, other][side].run}`;
  const { label } = page.items[state.text];
  return `${heads}, ${state.text + 1}. ${label.length > LONGEST_NAME ? `${label.slice(0, LONGEST_NAME - 1)}…` : label}`;
}

/** A text of the page, by its number, and its run where there are several. @param {number} text */
export function runName(text) {
  const { label, run } = page.items[text];
  return run ? `${text + 1}. ${run}: ${label}` : `${text + 1}. ${label}`;
}

/**
 * The numbers of both sides and their difference, a line a pair of query and key.
 * @param {Comparison} found
 * @returns {Generator<string[]>}
 */
export function* comparedPairs(found) {
  const { states, panels: [one, other], rows, columns, difference } = found;
  const names = [0, 1].map((side) => sideName(states, side));
  const bounds = [one, other].map(({ layers: [{ low, high }] }) => ({ low: low(), high: high() }));
  const masks = [one.masked, other.masked];
  const known = states.every((state) => allowedText(state, null)(0));
  const changed = difference && { low: difference.layers[0].low(), high: difference.layers[0].high() };
  const sides = names.flatMap((name, n) => [`${NAMES[n]}: ${name}`, `${NAMES[n]} ±`]);
  yield ["query_index", "query", "key_index", "key", "second_query", "second_key", ...sides, "difference", "difference ±", "allowed", "note"];
  const what = [...new Set(states.map((state) => `${itemOf(state).model}, ${kindOf(state).title}; ${precision(state)}`))].join("; ");
  let note = [`${what}, each by at most its ±.`, alignmentSaid(found), ...saidOf(one, states[0])].join(" ").trim();
  for (const [r, [i, j]] of rows.pairs.entries()) {
    for (const [c, [k, l]] of columns.pairs.entries()) {
      const cells = [i * one.C + k, j * other.C + l];
      const numbers = cells.flatMap((cell, n) => (masks[n]?.[cell] ? ["", ""] : withError(bounds[n].low[cell], bounds[n].high[cell])));
      const at = r * columns.pairs.length + c;
      const hidden = masks.every((masked, n) => masked?.[cells[n]]);
      const less = changed && !hidden ? withError(changed.low[at], changed.high[at]) : ["", ""];
      yield [String(one.queries.at[i]), one.queries.labels[i], String(one.keys.at[k]), one.keys.labels[k], other.queries.labels[j], other.keys.labels[l], ...numbers, ...less, known ? String(Number(!hidden)) : "", note];
      note = "";
    }
  }
}
