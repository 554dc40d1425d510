import { byId, chip, fill, make } from "./dom.js";
import { decimalsOf, times, toDecimals, wholePercent } from "./numbers.js";
import { allowedIn, described, firstOf, headsOf, isLoaded, itemOf, kindOf, page, rowWeights } from "./data.js";
import { get, set } from "./store.js";
import { entry, markCurrent, startRanking } from "./ranklist.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").AxisData} AxisData */
/** @typedef {{ name: string, color: string, tokens: number[] }} Part */
/**
 * The mean share of a head's rows; `low` and `high` bound it, `chance` is that of uniform attention.
 * @typedef {{ head: Head, value: number, low: number, high: number, chance: number, rows: number }} Share
 */

/** Significant digits of the largest share. */
const DIGITS = 3;
const TOKENS = /^\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*$/;

/** The axes as they are, whatever is hidden. @param {State} state */
function axes(state) {
  const { axes: all } = itemOf(state);
  const { queries, keys } = kindOf(state);
  return { queries: all[queries], keys: all[keys], same: queries === keys };
}

/** The two parts of a state, such as `s0.3-7`. @param {string} spans */
function read(spans) {
  const [from = "", to = ""] = spans.split(".");
  return { from, to };
}

/** The colour of a span in pictures and here. @param {number} number */
export function spanColor(number) {
  return page.spanColors[number % page.spanColors.length];
}

/**
 * A part of an axis: a named span or a range of tokens; null where there is none.
 * @param {string} code
 * @param {AxisData} axis
 * @returns {Part | null}
 */
function partOf(code, axis) {
  if (code.startsWith("s")) {
    const number = Number(code.slice(1));
    const span = axis.spans[number];
    return span ? { name: span.name, color: spanColor(number), tokens: span.ranges.flatMap(([a, b]) => between(a, b)) } : null;
  }
  const [first, last] = code.split("-").map(Number);
  if (!code || !(first <= last && last < axis.labels.length)) return null;
  const name = first === last ? `token ${first} ${axis.labels[first]}` : `tokens ${first}-${last}`;
  return { name, color: "", tokens: between(first, last + 1) };
}

/** @param {number} start @param {number} end */
function between(start, end) {
  return Array.from({ length: end - start }, (_, i) => start + i);
}

/** Both parts, if two were chosen. @param {State} state */
function chosenParts(state) {
  const { from, to } = read(state.spans);
  const { queries, keys } = axes(state);
  const [rows, columns] = [partOf(from, queries), partOf(to, keys)];
  return rows && columns ? { rows, columns } : null;
}

/** Whether heads are ranked by two parts. @param {State} state */
export function asksSpans(state) {
  return chosenParts(state) !== null;
}

/** A state's parts with one more: the first is what attends, the second what it attends to. @param {string} spans @param {string} code */
export function withPart(spans, code) {
  const { from, to } = read(spans);
  return from && !to ? `${from}.${code}` : code;
}

/** The span that a token is in, the innermost; -1 for none. @param {AxisData} axis @param {number} token */
export function spanAt(axis, token) {
  let [found, least] = [-1, Infinity];
  axis.spans.forEach(({ ranges }, number) => {
    const size = ranges.reduce((sum, [a, b]) => sum + b - a, 0);
    if (size < least && ranges.some(([a, b]) => a <= token && token < b)) [found, least] = [number, size];
  });
  return found;
}

/** Which keys a query of a head may attend to. @param {Head} head @param {number} T @param {number} S */
function allowing(head, T, S) {
  const known = allowedIn(head.site, head.row, T, S);
  return known || (head.site.causal ? (/** @type {number} */ query, /** @type {number} */ key) => key <= query + S - T : () => true);
}

/**
 * The mean share of a head's weight on a part, over the rows that may attend to any of it.
 * @param {State} state
 * @param {Head} head
 * @param {Part} rows
 * @param {Part} columns
 * @returns {Share}
 */
function shareOf(state, head, rows, columns) {
  const { queries, keys } = axes(state);
  const [T, S] = [queries.labels.length, keys.labels.length];
  const allowed = allowing(head, T, S);
  const whole = kindOf(state).quantity === "weights";
  const sums = { low: 0, value: 0, high: 0, chance: 0, rows: 0 };
  for (const t of rows.tokens) {
    const seen = columns.tokens.filter((s) => allowed(t, s)).length;
    if (!seen) continue;
    let reached = 0;
    for (let s = 0; s < S; s++) reached += Number(allowed(t, s));
    const three = [-0.5, 0, 0.5].map((shift) => rowWeights(head.site, head.row, t, S, shift));
    const [low, value, high] = three.map((row) => columns.tokens.reduce((sum, s) => sum + row[s], 0));
    // norms are shares of their row
    const [most, middle, least] = whole ? [1, 1, 1] : [2, 1, 0].map((k) => three[k].reduce((sum, weight) => sum + weight, 0) || 1);
    sums.low += low / most;
    sums.value += value / middle;
    sums.high += Math.min(high / least, 1);
    sums.chance += seen / reached;
    sums.rows++;
  }
  const count = sums.rows || 1;
  return { head, low: sums.low / count, value: sums.value / count, high: sums.high / count, chance: sums.chance / count, rows: sums.rows };
}

/** @type {{ key: string, ranked: Share[] } | null} */
let kept = null;

/** Every head by how many times chance its share is; null where layers are not unpacked. @param {State} state */
function ranking(state) {
  const parts = chosenParts(state);
  const heads = headsOf(state);
  if (!parts || !heads.every(({ site }) => isLoaded(site))) return null;
  const key = JSON.stringify([state.text, state.kind, state.writes, state.spans]);
  if (kept?.key !== key) {
    const ranked = heads.map((head) => shareOf(state, head, parts.rows, parts.columns)).filter(({ rows }) => rows);
    ranked.sort((a, b) => liftOf(b) - liftOf(a));
    kept = { key, ranked };
  }
  return kept.ranked;
}

/** @param {Share} share */
function liftOf({ value, chance }) {
  return chance > 0 ? value / chance : 0;
}

/** @param {Share} share @param {number} decimals */
function entryOf(share, decimals) {
  const { head, low, value, high } = share;
  const weight = toDecimals(low, value, high, decimals);
  const lift = times(liftOf(share));
  const label = `${head.name} ${weight}, ${lift} chance, ${described(head)}`;
  return entry(head, Math.min(value, 1), described(head), label, ` ${weight} `, make("span", { class: "soft" }, lift));
}

/** @param {State} state @param {Share[] | null} ranked */
function sentence(state, ranked) {
  const { from } = read(state.spans);
  const parts = chosenParts(state);
  const { queries } = axes(state);
  if (!parts) {
    const first = partOf(from, queries);
    return first ? `From ${first.name}: choose what it attends to.` : "Choose the part that attends, then the part that it attends to; in the text, drag over several tokens.";
  }
  const pair = `${parts.rows.name} → ${parts.columns.name}`;
  if (!ranked) return "Unpacking the maps of all layers…";
  if (!ranked.length) return `${pair}: none of these rows may attend to any of it.`;
  const [first] = ranked;
  const rows = first.rows === 1 ? "one row" : `the mean of ${first.rows} rows`;
  return `${pair}: most above chance by ${first.head.title}; shares of the weight (${rows}), and how many times the share of the keys that it is (${wholePercent(first.chance)} there).`;
}

/** @param {State} state */
export function drawSpans(state) {
  const { queries, keys, same } = axes(state);
  const { from, to } = read(state.spans);
  const any = queries.spans.length || keys.spans.length || state.spans;
  byId("spans").hidden = !any;
  if (!any) return;
  /** @param {AxisData} axis @param {string} side */
  const chips = (axis, side) => {
    const codes = axis.spans.map((_, number) => `s${number}`);
    const last = `${axis.labels.length - 1}-${axis.labels.length - 1}`;
    const named = [...codes, ...(side === "to" ? [] : [last]), ...[from, to].filter((code, i) => code && !code.startsWith("s") && code !== last && (same || (i ? "to" : "from") === side))];
    return [...new Set(named)].map((code) => {
      const part = partOf(code, axis);
      const uses = [code === from && side !== "to" ? "from" : "", code === to && side !== "from" ? "to" : ""].filter(Boolean);
      return make("button", { type: "button", "data-part": code, "data-use": side, "aria-pressed": String(uses.length > 0) },
        chip(part?.color || undefined), code === last ? "last token" : part?.name || code, uses.length ? make("span", { class: "use" }, ` ${uses.join(", ")}`) : "");
    });
  };
  const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest("#span-chips button"))?.dataset;
  fill(byId("span-chips"), ...(same ? chips(queries, "") : [...chips(queries, "from"), ...chips(keys, "to")]));
  if (focused) {
    /** @type {HTMLElement | null} */ (byId("span-chips").querySelector(`[data-part="${focused.part}"][data-use="${focused.use}"]`))?.focus();
  }
  const ranked = ranking(state);
  byId("span-said").textContent = sentence(state, ranked);
  const decimals = decimalsOf(ranked?.length ? Math.max(...ranked.map(({ value }) => value)) || 1 : 1, DIGITS);
  fill(byId("span-list"), ...firstOf(state, ranked || []).map((one) => entryOf(one, decimals)));
  markCurrent("span-list");
}

export function startSpans() {
  byId("span-chips").addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    if (!button) return;
    const { part = "", use } = button.dataset;
    const { from, to } = read(get().spans);
    if (use === "from") set({ spans: to ? `${part}.${to}` : part });
    else if (use === "to") set({ spans: from ? `${from}.${part}` : "" });
    else set({ spans: withPart(get().spans, part) });
  });
  const input = /** @type {HTMLInputElement} */ (byId("span-tokens"));
  input.addEventListener("change", () => {
    const match = TOKENS.exec(input.value);
    const [first, last] = match ? [Number(match[1]), Number(match[2] || match[1])] : [1, 0];
    const fits = first <= last && last < axes(get()).queries.labels.length;
    input.setCustomValidity(fits ? "" : "two numbers of tokens, from 0, such as 12-40");
    input.reportValidity();
    if (fits) set({ spans: withPart(get().spans, `${first}-${last}`) });
  });
  startRanking("span-list");
}
