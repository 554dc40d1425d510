import { byId, fill, make } from "./dom.js";
import { figure } from "./numbers.js";
import { described, headOf, headsOf, itemOf, kindOf, page, roleOf, signOf } from "./data.js";
import { set } from "./store.js";
import { ends, ink, rampOf } from "./colors.js";
import { inkOn } from "./palette.js";
import { changeColor } from "./signed.js";
import { magnified, prepared } from "./painter.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Painter} Painter */
/** @typedef {import("./types.js").Measure} Measure */

const BAR = 140;

/** The number that every text gives: how much weight the key with the most of it has. @type {Measure} */
const SINK = { key: "sink", title: "mean weight on the head’s sink", unit: "", from: "this text", finding: -1, orange: 0, ends: [], values: {} };
const SINK_PLACE = page.scores.findIndex(({ name }) => name === SINK.key);

/** The number that heads are tinted by; null for their roles. @param {State} state */
export function measureOf(state) {
  return [...page.measures, SINK].find(({ key }) => key === state.tint) || null;
}

/**
 * A head's number with its interval, if it was measured.
 * @param {Measure} measure
 * @param {State} state
 * @param {string} id
 */
export function valueOf(measure, state, id) {
  if (measure === SINK) {
    const mean = headOf(state, id)?.data.scores[SINK_PLACE]?.[0] ?? null;
    return mean === null ? null : /** @type {import("./types.js").Value} */ ([mean, null, null]);
  }
  return measure.values[kindOf(state).kind]?.[id] || null;
}

/** The largest size of any head, by measure and its heads. @type {WeakMap<object, number>} */
const tops = new WeakMap();

/** The largest size of any head. @param {Measure} measure @param {State} state */
function topOf(measure, state) {
  const values = measure.values[kindOf(state).kind] || measure;
  let top = tops.get(values);
  if (top === undefined) tops.set(values, top = Math.max(0, ...headsOf(state).map(({ id }) => Math.abs(valueOf(measure, state, id)?.[0] || 0))));
  return top;
}

/** To two digits, with a sign where there are two. @param {Measure} measure @param {number} value */
function digits(measure, value) {
  return figure(value, Boolean(measure.orange));
}

/**
 * The colour of a share of the largest size, whose strength goes by the root, so that small ones show.
 * @param {Measure} measure
 * @param {number} share from -1 to 1
 */
function colorOf(measure, share) {
  const root = Math.sign(share) * Math.sqrt(Math.abs(share));
  const step = 3 * Math.round(255 * Math.max(0, root));
  const parts = measure.orange ? changeColor(ends(), -measure.orange * root) : [...rampOf("auto").slice(step, step + 3)];
  return { color: `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`, ink: inkOn(parts[0], parts[1], parts[2]) };
}

/**
 * How a head is tinted and what is written there; no colour where it has no role, or no number.
 * @param {State} state
 * @param {Head} head
 * @returns {{ color: string | null, ink: string, sign: string, hatched: boolean }}
 */
export function tone(state, head) {
  const measure = measureOf(state);
  const { soft } = ink();
  if (!measure) {
    const role = roleOf.get(signOf(head));
    if (!role) return { color: null, ink: soft, sign: page.noRole, hatched: false };
    const [first] = head.data.roles;
    return { color: role.color, ink: role.ink, sign: first.code + (first.few ? page.few : ""), hatched: false };
  }
  const value = valueOf(measure, state, head.id);
  if (!value) return { color: null, ink: soft, sign: "", hatched: true };
  const text = digits(measure, value[0]);
  const top = topOf(measure, state);
  return { ...colorOf(measure, top ? value[0] / top : 0), sign: unsure(measure, value) ? `(${text})` : text, hatched: false };
}

/** Whether the interval of a signed number includes 0. @param {Measure} measure @param {import("./types.js").Value} value */
function unsure({ orange }, [, low, high]) {
  return Boolean(orange && low !== null && high !== null && low <= 0 && high >= 0);
}

/** A head in words, with its number. @param {State} state @param {Head} head */
export function labelled(state, head) {
  return [described(head), valueSaid(state, head)].filter(Boolean).join("; ");
}

/** The number that a head is tinted by, in words; nothing for roles. @param {State} state @param {Head} head */
export function valueSaid(state, head) {
  const measure = measureOf(state);
  if (!measure) return "";
  const value = valueOf(measure, state, head.id);
  if (!value) return `${measure.title}: not measured`;
  const [mean, low, high] = value;
  const at = measure === SINK ? sinkOf(state, head) : "";
  const interval = low === null || high === null ? "" : ` [${digits(measure, low)}, ${digits(measure, high)}]`;
  return `${measure.title}: ${digits(measure, mean)}${interval}${measure.unit ? ` ${measure.unit}` : ""}${at ? `, ${at}` : ""}`;
}

/** The token and place of a head's sink; nothing where it is not known. @param {State} state @param {Head | null | undefined} head */
export function sinkOf(state, head) {
  const at = head?.data.sink ?? null;
  return at === null ? "" : `${itemOf(state).axes[kindOf(state).keys].labels[at]} (${at})`;
}

/** What the tints mean, and how that was measured. @param {State} state @param {string} [beside] what stands with the number */
export function tintSaid(state, beside = "its head and ") {
  const measure = measureOf(state);
  if (!measure) return "";
  const without = headsOf(state).filter(({ id }) => !valueOf(measure, state, id)).length;
  const brackets = headsOf(state).some(({ id }) => { const value = valueOf(measure, state, id); return value && unsure(measure, value); });
  return [
    `${beside}the ${measure.title}${measure.unit ? ` in ${measure.unit}` : ""}; colour by the square root of its size${measure.orange && measure.ends[1] ? `, blue: ${measure.ends[1]}, orange: ${measure.ends[0]}` : ""}${brackets ? "; in brackets where the interval includes 0" : ""}${without ? `; hatched: not measured (${without} head${without > 1 ? "s" : ""})` : ""}.`,
    measure === SINK ? `From this text: the sink is the key with the most weight in all; ${page.scores[SINK_PLACE].source}.` : `From ${measure.from}: ${page.findings[measure.finding].how}`,
  ].join(" ");
}

/**
 * What colours mean, as a bar.
 * @param {Painter} painter
 * @param {State} state
 * @param {number} x
 * @param {number} y its middle
 * @param {boolean} [titled] whether it says what the number is
 * @returns {number} where it ends
 */
export function paintTints(painter, state, x, y, titled = true) {
  const measure = measureOf(state);
  if (!measure) return x;
  const tones = ink();
  const size = 11 * magnified();
  const top = topOf(measure, state);
  const signed = measure.ends.some(Boolean) ? measure.ends : [];
  const [ofLow, ofHigh] = measure.orange < 0 ? signed : [...signed].reverse();
  const low = `${digits(measure, measure.orange ? -top : 0)}${ofLow ? `, ${ofLow}` : ""}`;
  painter.text(low, x, y, { size, color: tones.soft });
  const left = x + painter.measure(low, size) + 6;
  for (let i = 0; i < BAR; i += 2) {
    const share = measure.orange ? (2 * (i + 1)) / BAR - 1 : (i + 1) / BAR;
    painter.rect(left + i, y - 6, 2.5, 12, colorOf(measure, share).color);
  }
  const text = `${digits(measure, top)}${measure.unit ? ` ${measure.unit}` : ""}${ofHigh ? `, ${ofHigh}` : ""}${titled ? `: ${measure.title}` : ""}`;
  painter.text(text, left + BAR + 6, y, { size, color: tones.soft });
  return left + BAR + 6 + painter.measure(text, size);
}

/**
 * A place of no number.
 * @param {Painter} painter
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
export function hatch(painter, x, y, width, height) {
  for (let at = 0; at + height <= width; at += 6) painter.line(x + at, y + height, x + at + height, y, ink().soft, 1, 0.6);
}

/** The picker of tints, and its legend. @param {State} state */
export function drawTints(state) {
  const place = /** @type {HTMLSelectElement} */ (byId("tint"));
  place.value = state.tint;
  const canvas = /** @type {HTMLCanvasElement} */ (byId("tint-legend"));
  // the dots by likeness have it below them
  canvas.hidden = !measureOf(state) || state.sort === "likeness";
  if (canvas.hidden) return;
  const end = paintTints(prepared(canvas, 400, 20), state, 0, 10, false);
  paintTints(prepared(canvas, Math.ceil(end) + 2, 20), state, 0, 10, false);
  canvas.setAttribute("aria-label", tintSaid(state));
}

export function startTints() {
  const groups = page.findings.map(({ name, title }, i) => {
    const options = page.measures.filter(({ finding }) => finding === i)
      .map(({ key, title: of, unit }) => make("option", { value: key }, unit ? `${of}, ${unit}` : of));
    return make("optgroup", { label: `${title} (${name})` }, ...options);
  });
  fill(byId("tint"), make("option", { value: "role" }, "role"), make("option", { value: SINK.key }, `${SINK.title} (this text)`), ...groups.filter((group) => group.childElementCount));
  byId("tint").addEventListener("change", () => set({ tint: /** @type {HTMLSelectElement} */ (byId("tint")).value }));
}

/** What results say of a head, for its card. @param {State} state @param {Head} head */
export function told(state, head) {
  return page.findings.flatMap(({ title, name, how, said }) => {
    const lines = said[kindOf(state).kind]?.[head.id] || [];
    const items = lines.map((line) => make("li", {}, line));
    return [
      make("h3", {}, title),
      lines.length ? make("ul", {}, ...items) : make("p", {}, "Nothing was found for this head."),
      make("p", { class: "small" }, `${name}: ${how}`),
    ];
  });
}

/** Every number of a head, for tables. @param {State} state @param {string} id */
export function numbersOf(state, id) {
  return page.measures.flatMap((measure) => (valueOf(measure, state, id) || [null, null, null]).map((one) => (one === null ? "" : String(one))));
}

/** What these are called. */
export function numberNames() {
  return page.measures.flatMap(({ key }) => [key, `${key}_low`, `${key}_high`]);
}
