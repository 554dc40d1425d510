// Tokens downwards, layers to the right. A node is a position between two layers: (0, i) is token i,
// (L, i) what stands at position i in the end. Following a node draws what reached it and where it goes.
import { arrow, byId, clamp, fill, make } from "./dom.js";
import { filed, wholePercent } from "./numbers.js";
import { count, data, depth, ROW, steps, total, weights } from "./data.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { setAddress } from "./observed.js";
import { untitled } from "./painter.js";
import { drawWhole, paint } from "./picture.js";
import { all, back, onward, strongest, taken } from "./ways.js";
import { term } from "./words.js";

/** @typedef {import("./types.js").Node} Node */
/** @typedef {{ row: HTMLElement, name: HTMLElement, share: HTMLElement, flow: HTMLElement, weights: HTMLElement }} Row */

const stage = byId("stage");
const canvas = /** @type {HTMLCanvasElement} */ (byId("lines"));
const slider = /** @type {HTMLInputElement} */ (byId("least"));
/** So many layers have their number on a narrow screen. */
const NARROW = 6;
const LAST = { layer: depth, nodes: [count - 1] };

/** So many lines from token to token are told apart where all are drawn: at first the strongest. */
const AT_FIRST = 500;
slider.value = String(Math.max(2, Math.ceil(200 * strongest(steps, count, AT_FIRST)) / 2));

/** The methods in the glossary. @type {Record<string, Record<string, string>>} */
const TERMS = { alti: term("ALTI"), rollout: term("attention rollout"), "max-flow": term("max-flow") };

/** @type {Node | null} null for all */
let chosen = null;
let held = false;
/** @type {import("./types.js").Line[]} */
let drawn = [];
/** @type {import("./types.js").Shown} */
let shown = { said: "", before: [], after: [] };

/** A token's number, in the target from its start. @param {number} node */
function position(node) {
  return data.targets && node >= data.targets ? node - data.targets : node;
}

/** @param {number} node */
function named(node) {
  return `${data.tokens[node]} (${position(node)})`;
}

/** Names as a list. @param {string[]} names */
function joined(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : names[0];
}

/** One side: a row a token with its text, its share and two bars. @param {HTMLElement} place @returns {Row[]} */
function side(place) {
  const rows = data.tokens.map((text, node) => {
    const [name, share] = [make("bdi", {}, text), make("span", { class: "share" })];
    const [flow, looked] = [make("i", { class: "flow" }), make("i", { class: "weights" })];
    const row = make("div", { class: node === data.targets && node ? "row target" : "row", title: named(node) },
      name, share, make("div", { class: "bars" }, flow, looked));
    return { row, name, share, flow, weights: looked };
  });
  fill(place, ...rows.map(({ row }) => row));
  return rows;
}

/**
 * @param {Row[]} rows
 * @param {Float32Array | null} flow
 * @param {Float32Array | null} looked
 * @param {number} top the share whose bar is longest
 */
function show(rows, flow, looked, top) {
  return rows.map(({ row, share, flow: bar, weights: other }, node) => {
    const found = { value: flow && flow[node], share: flow && flow[node] ? wholePercent(flow[node]) : "", flow: flow ? flow[node] / top : 0, weights: looked ? looked[node] / top : 0 };
    share.textContent = found.share;
    bar.style.width = `${100 * found.flow}%`;
    other.style.width = `${100 * found.weights}%`;
    row.classList.toggle("chosen", Boolean(chosen?.nodes.includes(node)));
    return found;
  });
}

/**
 * The sentence above: the strongest shares, and of whole ways the weights beside them.
 * @param {Float32Array} flow
 * @param {Float32Array | null} looked
 * @param {string} word
 */
function said(flow, looked, word) {
  const order = [...flow.keys()].sort((a, b) => flow[b] - flow[a]).slice(0, 4);
  return order
    .filter((node) => flow[node] >= 0.005)
    .map((node) => `${wholePercent(flow[node])} ${word} ${named(node)}${looked ? ` [${wholePercent(looked[node])} of the weight]` : ""}`)
    .join(", ");
}

let pending = 0;
function update() {
  if (!pending) pending = requestAnimationFrame(draw);
}

function draw() {
  pending = 0;
  const least = Math.max(Number(slider.value) / 100, 1e-6);
  const lines = chosen ? [] : all(steps, count, least);
  let reached = null;
  let given = null;
  let looked = null;
  let text = "all tokens, layer by layer";
  if (chosen) {
    reached = chosen.layer ? back(steps, count, chosen, least, lines) : null;
    given = chosen.layer < depth ? onward(steps, count, chosen, least, lines) : null;
    const whole = chosen.layer === 0 || chosen.layer === depth;
    if (whole) {
      looked = taken(weights, count, chosen);
      const flow = taken(total, count, chosen);
      if (chosen.layer) reached = flow;
      else given = flow;
    }
    const who = joined(chosen.nodes.map(named));
    const where = whole ? "" : ` after ${data.columns[chosen.layer - 1]}`;
    const parts = [];
    if (reached) parts.push(`${who}${where} ${chosen.nodes.length > 1 ? "are" : "is"} ${said(reached, looked, "from")}`);
    if (given) parts.push(`${said(given, reached ? null : looked, "of")} ${reached ? `comes from ${chosen.nodes.length > 1 ? "them" : "it"}` : `comes from ${who}${where}`}`);
    text = parts.join("; ");
  }
  fill(byId("said"), text);
  const top = Math.max(...(reached || [0]), ...(given || [0]), ...(looked || [0]), 1e-6);
  shown = { said: text, before: show(before, reached, reached && looked, top), after: show(after, given, given && !reached ? looked : null, top) };
  drawn = lines;
  byId("key-weights").hidden = !looked;
  byId("key-stays").hidden = chosen !== null;
  paint(canvas, lines, chosen);
  stage.dataset.node = chosen ? `${chosen.layer}:${chosen.nodes}` : "";
  document.documentElement.dataset.busy = "0";
}

/**
 * The node under the pointer: a token on the left, a position on the right, else the nearest.
 * @param {MouseEvent} event
 * @returns {Node | null}
 */
function under(event) {
  const box = canvas.getBoundingClientRect();
  const node = Math.floor((event.clientY - box.top) / ROW);
  if (node < 0 || node >= count) return null;
  const layer = Math.round(((event.clientX - box.left) / box.width) * depth);
  return { layer: clamp(layer, 0, depth), nodes: [node] };
}

/** @param {Node | null} node @param {boolean} hold */
function choose(node, hold) {
  chosen = node;
  const was = held;
  held = Boolean(node) && hold;
  if (held || was) remember();
  update();
}

/** The address has what is held. */
function remember() {
  setAddress(held && chosen ? `#at=${chosen.layer}:${chosen.nodes}` : "");
}

/** What the address holds, if it is there: a layer and tokens. @returns {Node | null} */
function recalled() {
  const [, layer, nodes = ""] = /^#at=(\d+):(\d+(?:,\d+)*)$/.exec(decodeURIComponent(location.hash)) || [];
  const found = { layer: Number(layer), nodes: nodes.split(",").map(Number) };
  return layer !== undefined && found.layer <= depth && found.nodes.every((node) => node < count) ? found : null;
}

/** The shares beside the lines, a line a token. */
function* numbers() {
  yield ["position", "token", "share_of_what_is_followed", "share_it_makes_up"];
  for (let node = 0; node < count; node += 1) yield [String(position(node)), data.tokens[node], ...[shown.before, shown.after].map((bars) => valueText(bars[node].value))];
}

/** @param {number | null} value */
function valueText(value) {
  return value === null ? "" : filed(value);
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { layer, nodes } = chosen || LAST;
  const way = arrow(event);
  if (event.key === "Escape") choose(null, false);
  else if (event.key === "Enter" || event.key === " ") choose(chosen || LAST, !held);
  else if (event.key === "Home") choose({ layer, nodes: [0] }, true);
  else if (event.key === "End") choose({ layer, nodes: [count - 1] }, true);
  else if (way) {
    const [along, down] = chosen ? way : [0, 0];
    choose({ layer: clamp(layer + along, 0, depth), nodes: [clamp(nodes[0] + down, 0, count - 1)] }, true);
  } else return;
  event.preventDefault();
}

function limit() {
  fill(byId("least-shown"), `${slider.value} %`);
  update();
}

startFrame(draw);
startHelpByKey([["↑ ↓", "from token to token"], ["← →", "from layer to layer"], ["Enter", "hold what is followed"], ["Home", "the first token"], ["End", "the last token"], ["Esc", "show all"]]);
startSaving("attnviz-flow", (painter) => drawWhole(painter, drawn, chosen, shown), numbers, { card: untitled((painter) => drawWhole(painter, drawn, chosen, shown), 24) });
fill(byId("about"), data.through);
fill(byId("measured"), `${data.formula[0].toUpperCase()}${data.formula.slice(1)}.`);
fill(byId("method"), data.called);
for (const [name, value] of Object.entries(TERMS[data.method] || {})) byId("method").setAttribute(name, value);
fill(byId("closing"), data.closing);
stage.style.setProperty("--row", `${ROW}px`);
const before = side(byId("before"));
const after = side(byId("after"));
const widest = Math.max(...before.map(({ name }) => name.offsetWidth));
document.documentElement.style.setProperty("--label", `${widest + 1}px`);
fill(byId("names"), make("div", {}, ...data.columns.map((name, n) => {
  const [number, ...word] = name.split(" ").reverse();
  return make("span", n % Math.ceil(depth / NARROW) ? { class: "between" } : {}, make("span", { class: "word" }, `${word.reverse().join(" ")} `), number);
})));

stage.addEventListener("pointermove", (event) => {
  if (!held && event.pointerType === "mouse") choose(under(event), false);
});
stage.addEventListener("mouseleave", () => {
  if (!held) choose(null, false);
});
stage.addEventListener("click", (event) => {
  const node = under(event);
  const same = held && node && chosen && chosen.layer === node.layer && chosen.nodes[0] === node.nodes[0];
  choose(same ? null : node, !same);
});
stage.addEventListener("keydown", pressed);
byId("free").addEventListener("click", () => choose(null, false));
slider.addEventListener("input", limit);
addEventListener("resize", update);
addEventListener("hashchange", () => {
  const next = recalled();
  if (next) choose(next, true);
});
const kept = recalled();
if (kept) choose(kept, true);
else if (data.followed) choose({ layer: data.followed.direction === "to" ? depth : 0, nodes: data.followed.positions }, true);
limit();
