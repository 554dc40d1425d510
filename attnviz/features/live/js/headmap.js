import { drawAxes, gutterFor } from "./axes.js";
import { weightText } from "./digits.js";
import { byId, fill } from "./dom.js";
import { windowHeight } from "./embed.js";
import { factsOf, rolesText } from "./facts.js";
import { NOT_ALLOWED } from "./masked.js";
import { draw, isMasked, picture } from "./shade.js";
import { changesOf, get, page, set } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */

/** Tokens that a row's sentence names. */
const NAMED = 4;
/** The side of a map that may be larger than the window leaves, and what of the window stays for the rest. */
const SIDE = 420;
const BESIDE = 250;
const BETWEEN = 16;
/** Maps that would be smaller side by side stand one below the other. */
const LEAST = 180;

/** @type {Answer | null} */
let current = null;
/** The cell that is pointed at. @type {{ t: number, s: number } | null} */
let pointed = null;
/** The side of a map and the room of the labels, in CSS pixels; whether maps stand side by side. */
let [size, gutter, aside] = [SIDE, 0, false];

/** The layer and number of the head that is shown. */
function place() {
  return get().head.split(".").map(Number);
}

/** @param {number} id */
export function label(id) {
  return page.labels[id];
}

/** A token by name and, where it stands more than once, by place. @param {Answer} answer @param {number} t @param {boolean} [second] of the second pass */
export function named(answer, t, second = false) {
  const ids = (second && answer.idsAfter) || answer.ids;
  return `${label(ids[t])}${ids.filter((id) => id === ids[t]).length > 1 ? ` (${t})` : ""}`;
}

/** @type {(cell: { t: number, s: number } | null, name: string) => void} */
let heard = () => {};

/** Hear of the cell that is pointed at, and of which map. @param {typeof heard} listener */
export function onCell(listener) {
  heard = listener;
}

export function startMaps() {
  for (const name of ["before", "after"]) {
    const canvas = /** @type {HTMLCanvasElement} */ (byId(`map-${name}`));
    canvas.addEventListener("pointermove", (event) => {
      hover(event, canvas);
      point(cellAt(event, canvas));
      heard(pointed, name);
    });
    // what a finger tapped stays
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "mouse") return;
      byId("tip").hidden = true;
      point(null);
      heard(null, name);
    });
    canvas.addEventListener("click", (event) => {
      const cell = cellAt(event, canvas);
      hover(event, canvas);
      point(cell);
      if (cell) set({ at: cell.t, key: cell.s, ...(get().why === null ? {} : { why: cell.s }) });
    });
    canvas.addEventListener("keydown", (event) => {
      const { why } = get();
      const [step, across] = [{ ArrowUp: -1, ArrowDown: 1 }[event.key], { ArrowLeft: -1, ArrowRight: 1 }[event.key]];
      if (!current || (!step && (!across || why === null))) return;
      /** @param {number} place */
      const within = (place) => Math.min(Math.max(place, 0), /** @type {Answer} */ (current).ids.length - 1);
      const key = within((why || 0) + (across || 0));
      set(step ? { at: within(current.at + step) } : { why: key, key });
      event.preventDefault();
    });
  }
}

/** @param {typeof pointed} cell */
function point(cell) {
  const moved = cell?.t !== pointed?.t || cell?.s !== pointed?.s;
  pointed = cell;
  if (moved) labelAxes();
}

/** The tokens around the maps that are shown. */
function labelAxes() {
  if (!current) return;
  const { at, after } = current;
  for (const name of after ? ["before", "after"] : ["before"]) {
    const left = name === "after" && aside ? 0 : gutter;
    const { why, key } = get();
    const ids = (name === "after" && current.idsAfter) || current.ids;
    const axes = /** @type {HTMLCanvasElement} */ (byId(`axes-${name}`));
    axes.parentElement?.style.setProperty("--side", String(size / (left + size)));
    drawAxes(axes, { ids, size, left, above: gutter, at, key: why ?? key, cell: pointed });
  }
}

/** How large maps can be. @param {boolean} both */
function measure(both) {
  const room = Math.floor(byId("maps").getBoundingClientRect().width);
  gutter = gutterFor(room);
  const half = (room - BETWEEN - gutter) / 2;
  aside = both && half >= LEAST;
  size = Math.floor(Math.max(120, Math.min(Math.max(SIDE, windowHeight() - BESIDE), aside ? half : room - gutter)));
}

/** @param {PointerEvent | MouseEvent} event @param {HTMLCanvasElement} canvas */
function cellAt(event, canvas) {
  if (!current) return null;
  const box = canvas.getBoundingClientRect();
  const [t, s] = [event.clientY - box.top, event.clientX - box.left].map((v) => Math.floor((v / box.width) * (current?.ids.length || 1)));
  return t >= 0 && s >= 0 && t < current.ids.length && s < current.ids.length ? { t, s } : null;
}

/** @param {MouseEvent} event @param {HTMLCanvasElement} canvas */
function hover(event, canvas) {
  const [tip, cell] = [byId("tip"), cellAt(event, canvas)];
  tip.hidden = !cell || !current;
  if (!cell || !current) return;
  const [layer, head] = place();
  const count = current.ids.length;
  const at = (head * count + cell.t) * count + cell.s;
  const second = current.after ? ` → ${weightText(current.after[layer][at])}` : "";
  fill(tip, `${named(current, cell.t)} → ${named(current, cell.s)}: ${isMasked(cell.t, cell.s) && !current.after?.[layer][at] ? NOT_ALLOWED : `${weightText(current.before[layer][at])}${second}`}`);
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

/** The maps of the head that is shown, and what its row says. @param {Answer} answer */
export function drawMaps(answer) {
  current = answer;
  const { head, off } = get();
  const [layer, number] = place();
  fill(byId("head-title"), `Head ${head}`);
  fill(byId("head-said"), `${factsOf(head).said}${get().text === rolesText() ? "" : " (on the text before)"}`);
  const { ids, before, after, at } = answer;
  byId("after").hidden = !after;
  byId("before-said").hidden = !after;
  const changed = changesOf(get());
  fill(byId("after-said"), `with ${changed}`);
  measure(Boolean(after));
  for (const [name, maps] of /** @type {const} */ ([["before", before], ["after", after]])) {
    if (!maps) continue;
    const canvas = /** @type {HTMLCanvasElement} */ (byId(`map-${name}`));
    const painter = draw(canvas, picture(maps[layer], number, ids.length), ids.length, size);
    const [step, mark] = [size / ids.length, getComputedStyle(canvas).getPropertyValue("--mark").trim()];
    for (const edge of [at, at + 1]) painter.line(0, edge * step, size, edge * step, mark, 1.5);
    canvas.setAttribute("aria-label", `${name === "after" ? `with ${changed}: ` : ""}head ${head}, ${rowSaid(answer, maps[layer], number, name === "after")}`);
  }
  labelAxes();
  const lines = [rowSaid(answer, before[layer], number)];
  if (after) lines.push(`With ${changed}: ${rowSaid(answer, after[layer], number, true)}`);
  if (off.has(head)) lines.push("This head is off: it still looks, but nothing of what it reads is passed on.");
  fill(byId("row-said"), lines.join(". "));
}

/** @param {Answer} answer @param {Float32Array} maps @param {number} head @param {boolean} [second] */
function rowSaid(answer, maps, head, second = false) {
  const count = answer.ids.length;
  const row = maps.subarray((head * count + answer.at) * count, (head * count + answer.at + 1) * count);
  const best = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, NAMED).filter((s) => row[s] >= 0.01);
  return `${named(answer, answer.at, second)} looks at ${best.map((s) => `${named(answer, s, second)} ${weightText(row[s])}`).join(", ")}`;
}
