// Layers downwards, tokens across: the word that each state is read as. Pointing shows a cell's words,
// a click holds it and shows what every head of the layer added.
import { behind, cellAt, data, paint, where } from "./data.js";
import { arrow, byId, clamp, fill, make, painted, say } from "./dom.js";
import { percent } from "./numbers.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { legend } from "./legend.js";
import { setAddress } from "./observed.js";
import { untitled } from "./painter.js";
import { show } from "./panel.js";
import { drawWhole } from "./picture.js";

/** @typedef {import("./types.js").Place} Place */

const END = { layer: data.layers.length - 1, column: data.tokens.length - 1 };
/** @type {Place | null} */
let held = null;
/** @type {Place} */
let last = END;
/** So much of the width is little. */
const LITTLE = 0.3;
/** Columns that a card has room for. */
const CARD = 10;

/** @type {HTMLTableCellElement[]} */
const boxes = data.cells.map((cell, n) => {
  const place = { layer: Math.floor(n / data.tokens.length), column: n % data.tokens.length };
  const [word, share] = cell.top[0];
  const name = data.names[word];
  const box = make("td", { role: "gridcell", tabindex: -1, "aria-selected": "false", "aria-label": `${behind(place.layer)}, ${where(place.column)}: ${name}, ${percent(share)}` }, make("bdi", {}, name));
  return painted(box, paint(share));
});

/** @param {Place} place */
function boxAt(place) {
  return boxes[place.layer * data.tokens.length + place.column];
}

/** @param {Element} element @returns {Place | null} */
function placeOf(element) {
  const n = boxes.indexOf(/** @type {HTMLTableCellElement} */ (element.closest("td")));
  return n < 0 ? null : { layer: Math.floor(n / data.tokens.length), column: n % data.tokens.length };
}

/** Scroll the table, not the page, until a cell is seen. @param {HTMLElement} box */
function bring(box) {
  const wide = byId("wide");
  const { offsetLeft: left, offsetTop: top, offsetWidth: width, offsetHeight: height } = box;
  wide.scrollLeft = clamp(wide.scrollLeft, left + width + 8 - wide.clientWidth, Math.max(0, left - 80));
  wide.scrollTop = clamp(wide.scrollTop, top + 2 * height - wide.clientHeight, Math.max(0, top - 2 * height));
}

/** Words are cut rather than scrolled for, where little is missing. */
function fit() {
  const wide = byId("wide");
  grid.classList.remove("tight");
  const missing = wide.scrollWidth - wide.clientWidth;
  grid.classList.toggle("tight", missing > 1 && missing < LITTLE * wide.clientWidth);
}

/** @param {Place} place @param {boolean} hold */
function choose(place, hold) {
  boxAt(held || last).setAttribute("aria-selected", "false");
  boxAt(last).tabIndex = -1;
  held = hold ? place : null;
  last = place;
  boxAt(place).tabIndex = 0;
  if (hold) boxAt(place).setAttribute("aria-selected", "true");
  if (hold) bring(boxAt(place));
  show(place, hold);
  const [word, share] = cellAt(place).top[0];
  if (hold) say(`${behind(place.layer)}, ${where(place.column)}: ${data.names[word]}, ${percent(share)}`);
  remember();
}

/** The address has what is held. */
function remember() {
  setAddress(held ? `#at=${held.layer}:${data.positions[held.column]}` : "");
}

/** What the address holds, if it is there. @returns {Place | null} */
function recalled() {
  const [, layer, position] = /^#at=(\d+):(\d+)$/.exec(decodeURIComponent(location.hash)) || [];
  const found = { layer: Number(layer), column: data.positions.indexOf(Number(position)) };
  return layer !== undefined && found.layer <= END.layer && found.column >= 0 ? found : null;
}

/** @param {string} name @param {string[]} texts @param {"thead" | "tfoot"} part */
function names(name, texts, part) {
  const first = name ? make("th", { scope: "row" }, name) : make("td", {});
  return make(part, {}, make("tr", {}, first, ...texts.map((text) => (text ? make("th", { scope: "col" }, make("bdi", { title: text }, text)) : make("td", {})))));
}

/** The numbers of every cell, a line each. */
function* numbers() {
  yield ["layer", "position", "token", "word", "probability", "entropy", "kl", "followed", "followed_rank", "followed_probability"];
  for (const [n, cell] of data.cells.entries()) {
    const [layer, column] = [Math.floor(n / data.tokens.length), n % data.tokens.length];
    yield [data.layers[layer], String(data.positions[column]), data.tokens[column], data.names[cell.top[0][0]], String(cell.top[0][1]),
      String(cell.entropy), String(cell.kl), data.followed[column], String(cell.rank), String(cell.share)];
  }
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const way = arrow(event);
  if (event.key === "Escape") choose(last, false);
  else if (event.key === "Enter" || event.key === " ") choose(last, !held);
  else if (event.key === "Home") choose({ ...last, column: 0 }, true);
  else if (event.key === "End") choose({ ...last, column: END.column }, true);
  else if (way) choose({ layer: clamp(last.layer + way[1], 0, END.layer), column: clamp(last.column + way[0], 0, END.column) }, true);
  else return;
  boxAt(last).focus();
  event.preventDefault();
}

fill(byId("about"), data.title);
for (const name of /** @type {const} */ (["checked", "reason", "closing"])) fill(byId(name), data[name]);
fill(byId("legend"), ...legend([...data.palette], "probability 0", "1", false));
const grid = byId("grid");
grid.setAttribute("role", "grid");
grid.setAttribute("aria-label", "the most probable word by layer and token");
grid.append(names("", data.tokens, "thead"), make("tbody", {}, ...data.layers.map((name, layer) =>
  make("tr", {}, make("th", { scope: "row" }, name), ...boxes.slice(layer * data.tokens.length, (layer + 1) * data.tokens.length)))));
if (data.next.length) grid.append(names("next", data.next, "tfoot"));
grid.addEventListener("pointerover", (event) => {
  const place = placeOf(/** @type {Element} */ (event.target));
  if (place && !held && event.pointerType === "mouse") choose(place, false);
});
grid.addEventListener("click", (event) => {
  const place = placeOf(/** @type {Element} */ (event.target));
  if (place) choose(place, !(held && held.layer === place.layer && held.column === place.column));
});
grid.addEventListener("keydown", pressed);
fit();
addEventListener("resize", fit);
addEventListener("hashchange", () => {
  const next = recalled();
  if (next) choose(next, true);
});
startHelpByKey([["↑ ↓", "from layer to layer"], ["← →", "from token to token"], ["Enter", "hold a cell"], ["Home", "the first token"], ["End", "the last token"], ["Esc", "let go"]]);
startFrame(() => choose(last, Boolean(held)));
startSaving("attnviz-lens", (painter) => drawWhole(painter), numbers, { headline: () => data.said, card: untitled((painter) => drawWhole(painter, CARD), 28) });
choose(recalled() || END, true);
document.documentElement.dataset.busy = "0";
