// One head's map of a long text: tiles, and finer cells from the largest weights of each row where
// somebody has zoomed in.
import { cells, first, resting, snapped, strongest, whole } from "./cells.js";
import { colors, data, keptOf, KEYS, keys, LENGTH, queries, ROWS, tilesOf } from "./data.js";
import { arrow, byId, clamp, fill, make, say } from "./dom.js";
import { windowHeight } from "./embed.js";
import { filed, shown, thousands, wholePercent } from "./numbers.js";
import { startSaving } from "./download.js";
import { read, startFinding } from "./finding.js";
import { startFrame } from "./frame.js";
import { again, mark, startHeads } from "./heads.js";
import { startHelpByKey } from "./help.js";
import { legend } from "./legend.js";
import { MASKED, maskedText } from "./masked.js";
import { setAddress } from "./observed.js";
import { prepared } from "./painter.js";
import { ABOVE, BELOW, drawMap, LEFT, RIGHT, topOf, word } from "./picture.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Cells} Cells */
/** @typedef {import("./types.js").Kept} Kept */

const canvas = /** @type {HTMLCanvasElement} */ (byId("map"));
const AROUND = 7;
const PAIRS = 14;
/** @type {State} */
let state = { head: 0, sum: false, part: whole(), held: null };
/** @type {{ cells: Cells, kept: Kept } | null} */
let now = null;
let turn = 0;
/** @type {[number, number, number, number] | null} where dragging began, and where it is */
let dragged = null;

function tones() {
  const style = getComputedStyle(document.documentElement);
  const tone = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return { text: tone("--text"), soft: tone("--soft"), mark: tone("--mark"), line: tone("--line") };
}

/** Pixels along the map itself. */
function side() {
  const room = /** @type {HTMLElement} */ (canvas.parentElement).clientWidth - 30 - LEFT;
  return clamp(Math.min(room, windowHeight() - 290), 180, 900);
}

/** @param {number} from @param {number} count @param {number} length */
function range(from, count, length) {
  const last = Math.min(length, from + count) - 1;
  return from === last ? thousands(from) : `${thousands(from)}–${thousands(last)}`;
}

function draw() {
  if (!now) return;
  const size = side();
  const painter = prepared(canvas, LEFT + size + RIGHT, ABOVE + size + BELOW);
  drawMap(painter, now.cells, state.part, state.sum, state.head, size, tones(), state.held);
  if (dragged) {
    const [a, b, c, d] = dragged;
    for (const [x1, y1, x2, y2] of [[a, b, c, b], [c, b, c, d], [c, d, a, d], [a, d, a, b]]) painter.line(x1, y1, x2, y2, tones().mark, 2);
  }
}

/** @param {Partial<State>} change @param {boolean} [quiet] leave the address alone @param {boolean} [visited] Back comes back */
async function set(change, quiet = false, visited = false) {
  state = { ...state, ...change };
  const mine = ++turn;
  document.documentElement.dataset.busy = "1";
  const [tiles, kept] = await Promise.all([tilesOf(state.head), keptOf(state.head)]);
  if (mine !== turn) return;
  now = { cells: cells(tiles, kept, state.part, state.sum), kept };
  mark(state.head);
  tellAll(now);
  tip(state.held);
  draw();
  const { row, key, side: wide } = state.part;
  const parts = [`head=${data.heads[state.head].name}`, ...(wide < LENGTH ? [`at=${row},${key},${wide}`] : []), ...(state.held ? [`cell=${state.held}`] : []), ...(state.sum ? ["sum"] : [])];
  if (!quiet) setAddress(`#${parts.join("&")}`, visited);
  document.documentElement.dataset.busy = "0";
}

/** @param {{ cells: Cells, kept: Kept }} found */
function tellAll({ cells: found, kept }) {
  const { part, sum, head, held } = state;
  fill(byId("name"), data.heads[head].said);
  byId("show-max").setAttribute("aria-pressed", String(!sum));
  byId("show-sum").setAttribute("aria-pressed", String(sum));
  const where = `queries ${range(part.row, part.side, ROWS.to)} × keys ${range(part.key, part.side, KEYS.to)}; a cell is ${found.cell === 1 ? "one query and one key" : `${found.cell} × ${found.cell} tokens: ${sum ? "sum over its keys, mean over its queries" : "the largest weight in it"}`}`;
  fill(byId("where"), where);
  canvas.setAttribute("aria-label", `map of ${data.heads[head].said}: ${where}. Drag, or keys plus and minus, zoom; arrows move.`);
  const top = topOf(found, sum, head, part.side >= LENGTH);
  const steps = [0, 0.25, 0.5, 0.75, 1].map((share) => { const i = 3 * Math.round(255 * share); return `rgb(${colors[i]} ${colors[i + 1]} ${colors[i + 2]})`; });
  fill(byId("legend"), ...legend(steps, "0", `${shown(top)}${sum || part.side < LENGTH ? ", the largest in sight" : ""} (by the square root)`, found.masked.includes(MASKED.allowed), found.masked.includes(MASKED.selected)));
  const finer = found.cell < data.size;
  fill(byId("exact"), finer
    ? `Drawn from the ${data.kept} largest weights of each row: ${wholePercent(Math.min(1, found.covered))} of the weight of these rows. No other weight of a row here is above ${shown(found.below)}.`
    : `Exact over all weights: tiles of ${data.size} × ${data.size} tokens were filled while the model ran.`);
  list(kept, found.cell, held);
  /** @type {HTMLButtonElement} */ (byId("zoom-out")).disabled = /** @type {HTMLButtonElement} */ (byId("whole")).disabled = part.side >= LENGTH;
  /** @type {HTMLButtonElement} */ (byId("zoom-in")).disabled = part.side <= 16;
}

/** Words around a token, which is marked. @param {string[]} texts @param {number} at */
function around(texts, at) {
  const from = Math.max(0, at - AROUND);
  const part = (/** @type {number} */ a, /** @type {number} */ b) => texts.slice(a, b).map(read).join("");
  return make("span", {}, `…${part(from, at)}`, make("mark", {}, part(at, at + 1)), `${part(at + 1, at + AROUND)}…`);
}

/** A weight with the words around its query and key, to go to. @param {import("./types.js").Pair} pair */
function entry(pair) {
  const made = make("button", { type: "button" }, make("b", {}, shown(pair.weight)), ` ${thousands(pair.query)} `, around(queries, pair.query), ` → ${thousands(pair.key)} `, around(keys, pair.key));
  made.addEventListener("click", () => focus(pair.query, pair.key));
  return make("li", {}, made);
}

/** @param {Kept} kept @param {number} cell @param {[number, number] | null} held */
function list(kept, cell, held) {
  const { part } = state;
  const [row, key, size] = held ? [held[0], held[1], cell] : [part.row, part.key, part.side];
  const single = held !== null && cell === 1;
  const rows = Math.min(size, ROWS.to - row);
  const rests = !held && KEYS.from === 0 ? resting(kept, row, size) : 0;
  const most = rests > rows / 2;
  const found = single ? strongest(kept, row, 1, KEYS.from, LENGTH, data.kept) : strongest(kept, row, size, key, size, PAIRS, !most);
  const title = single ? `Largest weights of query ${thousands(row)} ${word(queries[row])}`
    : held ? `Largest weights in the cell: queries ${range(row, size, ROWS.to)} × keys ${range(key, size, KEYS.to)}` : "Largest weights in sight";
  fill(byId("listed"), title);
  fill(byId("rest"), most ? `The first token has the largest weight of ${wholePercent(rests / rows)} of these rows; the list leaves it out.` : "");
  fill(byId("pairs"), ...(found.length ? found.map(entry) : [make("li", { class: "small" }, "None of the kept weights is here.")]));
  byId("lookers").hidden = !single;
  if (single) {
    const lookers = strongest(kept, ROWS.from, ROWS.to - ROWS.from, key, 1, PAIRS);
    fill(byId("looked-at"), `Queries with most weight on key ${thousands(key)} ${word(keys[key])}`);
    fill(byId("back"), ...(lookers.length ? lookers.map(entry) : [make("li", { class: "small" }, "No kept weight is on it.")]));
  }
  const query = held ? Math.min(held[0], ROWS.to - 1) : found.length ? found[0].query : part.row;
  readText(kept, query, held ? Math.min(cell, ROWS.to - held[0]) : 1);
}

/** The words around some queries; keys near them are tinted. @param {Kept} kept @param {number} query @param {number} count */
function readText(kept, query, count) {
  const [from, to] = [Math.max(0, query - 90), Math.min(queries.length, query + count + 50)];
  /** @type {Map<number, number>} */
  const weights = new Map();
  for (let row = query; row < query + count; row++) {
    for (let i = first(row); i < first(row + 1); i++) {
      if (kept.keys[i] >= 0) weights.set(kept.keys[i], Math.max(kept.weights[i], weights.get(kept.keys[i]) || 0));
    }
  }
  fill(byId("text-of"), count > 1 ? `queries ${range(query, count, ROWS.to)} are underlined, their keys tinted by weight` : `query ${range(query, 1, ROWS.to)} is underlined, its keys tinted by weight`);
  fill(byId("text"), ...queries.slice(from, to).map((text, n) => {
    const at = from + n;
    const readable = read(text).replaceAll("⏎", "⏎ ");
    const weight = data.keys ? 0 : weights.get(at) || 0;
    const made = make(at >= query && at < query + count ? "mark" : "span", weight ? { class: "key", title: shown(weight) } : {}, readable);
    if (weight) made.style.background = `color-mix(in srgb, var(--strong) ${Math.round(40 * Math.sqrt(Math.min(1, weight)))}%, transparent)`;
    return made;
  }));
  const text = byId("text"); // which scrolls alone: the map stays in sight
  const marked = text.querySelector("mark");
  if (marked) text.scrollTop += marked.getBoundingClientRect().top - text.getBoundingClientRect().top - text.clientHeight / 3;
}

/** Zoom to a pair of tokens. @param {number} query @param {number} key */
function focus(query, key) {
  const side_ = Math.min(64, LENGTH);
  set({ part: snapped({ row: query - side_ / 2, key: key - side_ / 2, side: side_ }), held: [query, key] }, false, true);
}

/** Go to a query, and to the key that has most of its weight. @param {number} query */
async function jump(query) {
  const kept = await keptOf(state.head);
  const [most] = strongest(kept, query, 1, KEYS.from, LENGTH, 1, false).concat(strongest(kept, query, 1, KEYS.from, LENGTH, 1));
  focus(query, most ? most.key : KEYS.from);
  say(most ? `query ${query}: most weight on key ${most.key}, ${shown(most.weight)}` : `query ${query}`);
}

/** @param {number} by 0.5 for closer @param {[number, number]} [about] a query and a key */
function zoom(by, about) {
  const { row, key, side: wide } = state.part;
  const [r, k] = about || state.held || [row + wide / 2, key + wide / 2];
  const next = clamp(wide * by, 8, LENGTH);
  set({ part: snapped({ row: r - next / 2, key: k - next / 2, side: next }) }, false, true);
}

/** The token pair below a pointer, or null. @param {number} x @param {number} y in the canvas @returns {[number, number] | null} */
function under(x, y) {
  if (!now) return null;
  const box = side() / (state.part.side / now.cells.cell);
  const [c, r] = [Math.floor((x - LEFT) / box), Math.floor((y - ABOVE) / box)];
  if (r < 0 || c < 0 || r >= now.cells.rows || c >= now.cells.columns) return null;
  return [state.part.row + r * now.cells.cell, state.part.key + c * now.cells.cell];
}

/** @param {[number, number] | null} at */
function tip(at) {
  if (!now || !at) return fill(byId("tip"));
  const { cell, columns, values, masked } = now.cells;
  const i = ((at[0] - state.part.row) / cell) * columns + (at[1] - state.part.key) / cell;
  const name = (/** @type {string[]} */ texts, /** @type {number} */ n, /** @type {number} */ end) => `${range(n, cell, end)} ${word(texts[n])}${cell > 1 ? " …" : ""}`;
  const finer = cell < data.size && values[i] === 0;
  const said = masked[i] ? maskedText(masked[i]) : finer ? `below ${shown(now.cells.below)}` : `${state.sum ? "sum" : cell > 1 ? "largest" : "weight"} ${shown(values[i])}`;
  fill(byId("tip"), `query ${name(queries, at[0], ROWS.to)} → key ${name(keys, at[1], KEYS.to)}: ${said}`);
  return said;
}

function startMap() {
  const place = (/** @type {PointerEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return /** @type {[number, number]} */ ([event.clientX - box.left, event.clientY - box.top]);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || !under(...place(event))) return;
    const [x, y] = place(event);
    dragged = [x, y, x, y];
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    tip(under(x, y));
    if (!dragged || event.pointerType !== "mouse") return;
    const size = side();
    dragged = [dragged[0], dragged[1], clamp(x, LEFT, LEFT + size), clamp(y, ABOVE, ABOVE + size)];
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!dragged || !now) return;
    const [a, b, c, d] = dragged;
    dragged = null;
    const scale = state.part.side / side();
    if (Math.max(Math.abs(a - c), Math.abs(b - d)) > 8) {
      const [x, y, wide] = [Math.min(a, c), Math.min(b, d), Math.max(Math.abs(a - c), Math.abs(b - d))];
      set({ part: snapped({ row: state.part.row + (y - ABOVE) * scale, key: state.part.key + (x - LEFT) * scale, side: wide * scale }), held: null }, false, true);
      return;
    }
    hold(under(...place(event)));
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; draw(); });
  canvas.addEventListener("pointerleave", () => tip(state.held));
  canvas.addEventListener("dblclick", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = under(event.clientX - box.left, event.clientY - box.top);
    if (at) zoom(0.25, at);
  });
  canvas.addEventListener("keydown", pressed);
}

/** @param {[number, number] | null} at */
function hold(at) {
  const same = at && state.held && at[0] === state.held[0] && at[1] === state.held[1];
  set({ held: same ? null : at });
  const said = tip(at);
  if (said) say(byId("tip").textContent || "");
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !now) return;
  const { cell } = now.cells;
  const { row, key, side: wide } = state.part;
  const way = arrow(event);
  if (way) {
    const [along, down] = way;
    if (event.shiftKey) {
      set({ part: snapped({ row: row + (down * wide) / 4, key: key + (along * wide) / 4, side: wide }) });
    } else {
      const [r, k] = state.held || [row, key];
      const to = (/** @type {number} */ at, /** @type {number} */ first, /** @type {number} */ length) => clamp(at, first, Math.min(first + wide, length) - 1);
      const base = (/** @type {number} */ at, /** @type {number} */ first) => first + Math.floor((at - first) / cell) * cell;
      hold([base(to(r + down * cell, row, ROWS.to), row), base(to(k + along * cell, key, KEYS.to), key)]);
    }
  } else if (event.key === "+" || event.key === "=") zoom(0.5);
  else if (event.key === "-") zoom(2);
  else if (event.key === "0") set({ part: whole(), held: null }, false, true);
  else if (event.key === "Escape") set({ held: null });
  else return;
  event.preventDefault();
}

/** What the address shows. @returns {Partial<State>} */
function recalled() {
  const said = decodeURIComponent(location.hash);
  const head = data.heads.findIndex(({ name }) => name === /[#&]head=([^&]+)/.exec(said)?.[1]);
  const [, row, key, wide] = (/[#&]at=(\d+),(\d+),(\d+)/.exec(said) || []).map(Number);
  const part = wide >= 1 ? snapped({ row, key, side: wide }) : whole();
  const [query, held] = (/[#&]cell=(\d+),(\d+)/.exec(said) || []).slice(1).map(Number);
  const inside = query >= part.row && query < Math.min(ROWS.to, part.row + part.side) && held >= part.key && held < Math.min(KEYS.to, part.key + part.side);
  return { head: Math.max(0, head), part, sum: /[#&]sum(&|$)/.test(said), held: inside ? [query, held] : null };
}

/** The cells in sight, a line each. */
function* numbers() {
  yield ["head", "query", "key", "tokens", state.sum ? "sum" : "largest"];
  if (!now) return;
  const { cell, columns, values, masked } = now.cells;
  for (let i = 0; i < values.length; i++) {
    if (masked[i] || !values[i]) continue;
    yield [data.heads[state.head].name, String(state.part.row + Math.floor(i / columns) * cell), String(state.part.key + (i % columns) * cell), String(cell), filed(values[i], 4)];
  }
}

fill(byId("title"), data.title);
fill(byId("said"), data.said);
fill(byId("closing"), data.closing);
fill(byId("notes"), ...data.notes);
byId("show-max").addEventListener("click", () => set({ sum: false }));
byId("show-sum").addEventListener("click", () => set({ sum: true }));
byId("zoom-in").addEventListener("click", () => zoom(0.5));
byId("zoom-out").addEventListener("click", () => zoom(2));
byId("whole").addEventListener("click", () => set({ part: whole(), held: null }, false, true));
addEventListener("hashchange", () => set(recalled(), true));
addEventListener("resize", draw);
startHelpByKey([["drag", "zoom to what is dragged over"], ["+ −", "closer, farther"], ["0", "the whole text"], ["↑ ↓ ← →", "from cell to cell, or from head to head"], ["Shift ↑ ↓ ← →", "move what is in sight"], ["Esc", "let go of the cell"]]);
startFrame(() => { draw(); again(); });
startMap();
startFinding(jump);
startSaving("attnviz-long", (painter) => {
  const { cells: found } = /** @type {{ cells: Cells }} */ (now);
  return drawMap(painter, found, state.part, state.sum, state.head, 640, tones(), state.held);
}, numbers);
startHeads((n) => { set({ head: n, held: null }); }, () => state.head).then(() => set(recalled(), true));
