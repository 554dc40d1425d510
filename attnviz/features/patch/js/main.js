// The circuit: layers upwards, an edge as thick as what it restores. Pointing at a head shows its
// figures and its map on the first clean prompt, pointing at an edge what goes along it.
import { byId, fill, make, table } from "./dom.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { chart } from "./curves.js";
import { mapCanvas } from "./mapfigure.js";
import { wholePercent } from "./numbers.js";
import { inkOn, ramp, rgb } from "./palette.js";
import { shades } from "./shades.js";
import { draw, paintSvg } from "./svg.js";
import { term } from "./words.js";

/** @typedef {import("./types.js").Arrow} Arrow */
/** @typedef {import("./types.js").Node} Node */

/** @type {import("./types.js").Data} */
const data = JSON.parse(byId("data").textContent || "");
// as in graph.py, which bends the arrows; on a phone heads stand closer, so that letters stay large
const NARROW = innerWidth <= 600;
const STEP = NARROW ? 84 : 115;
const RISE = 110;
/** Half of a node's box. */
const [HALF, TALL] = [40, 22];
/** Edges with their number: the strongest, in so many places along each where there is room. */
const [NUMBERED, PLACES] = [5, [0.5, 0.4, 0.6, 0.3, 0.7]];

const reach = Math.max(1, ...data.nodes.map((node) => Math.abs(node.x)));
const wide = 2 * reach * STEP + (NARROW ? 150 : 230);
const high = data.levels.length * RISE + 20;
/** @type {Map<string, Node>} */
const nodes = new Map(data.nodes.map((node) => [node.name, node]));
/** @type {Node | Arrow | null} */
let held = null;

/** @param {Node} node @returns {[number, number]} */
function place(node) {
  return [wide / 2 + node.x * STEP, high - 50 - node.level * RISE];
}

/** The points of an edge's curve, from rim to rim. @param {Arrow} arrow @returns {[number, number][]} */
function bent(arrow) {
  const [start, end] = [arrow.start, arrow.end].map((name) => /** @type {Node} */ (nodes.get(name)));
  const [[x1, y1], [x2, y2]] = [place(start), place(end)];
  const [mx, my] = [(x1 + x2) / 2 + arrow.bend * (y1 - y2), (y1 + y2) / 2 + arrow.bend * (x2 - x1)];
  /** @param {number} x @param {number} y @param {number} room */
  const rim = (x, y, room) => {
    const long = Math.hypot(mx - x, my - y) || 1;
    const [across, down] = [(mx - x) / long, (my - y) / long];
    const out = room + Math.min(HALF / Math.max(Math.abs(across), 1e-6), TALL / Math.max(Math.abs(down), 1e-6));
    return /** @type {[number, number]} */ ([x + across * out, y + down * out]);
  };
  return [rim(x1, y1, 0), [mx, my], rim(x2, y2, 9)];
}

/** @param {Arrow} arrow */
function way(arrow) {
  const [start, middle, end] = bent(arrow);
  return `M${start} Q${middle} ${end}`;
}

/** @type {[number, number][]} */
const taken = [];
/** Where the number of an edge lies on no node and no other number. @param {Arrow} arrow @returns {[number, number]} */
function free(arrow) {
  const [a, m, b] = bent(arrow);
  const spots = PLACES.map((t) => /** @type {[number, number]} */ ([0, 1].map((n) => (1 - t) ** 2 * a[n] + 2 * t * (1 - t) * m[n] + t * t * b[n])));
  const clear = ([x, y] = [0, 0]) => data.nodes.map(place).every(([u, v]) => Math.abs(u - x) > HALF + 20 || Math.abs(v - y) > TALL + 10)
    && taken.every(([u, v]) => Math.abs(u - x) > 44 || Math.abs(v - y) > 18);
  const spot = spots.find(clear) || spots[0];
  taken.push(spot);
  return spot;
}

/** @param {Arrow} arrow */
function named(arrow) {
  return arrow.side === "logits" ? `${arrow.start} \u2192 logits` : `${arrow.start} \u2192 ${arrow.end}.${arrow.side}`;
}

/** Faithfulness by size, random circuits, and the circuit itself. */
function curve() {
  const last = Math.max(...data.curve.map(([size]) => size), 1);
  return chart({
    width: 360, height: 190, label: "faithfulness by size", title: "heads that are not corrupted",
    across: [0, Math.round(last / 2), last].map((size) => [size, String(size)]), up: [0, 0.5, 1].map((share) => [share, String(share)]),
    curves: [{ kind: "line", points: data.curve.map(([size, share]) => [size, share]), band: data.curve.map(([, share, low, high]) => [low ?? share, high ?? share]) }],
    dots: [...data.random.map((share) => ({ kind: "random", at: /** @type {[number, number]} */ ([data.size, share]), r: 2.4 })), { kind: "mine", at: [data.size, data.faithful], r: 5 }],
  });
}

/** A head's weights on the first clean prompt: queries downwards, keys across. @param {number[][]} pattern */
function map(pattern) {
  const [queries, rows] = [data.tokens, data.tokens.length];
  const pixels = shades({ values: pattern.flat(), rows, columns: rows, colors: ramp(data.palette), factor: () => 1, root: true, masked: (cell) => cell % rows > Math.trunc(cell / rows) });
  return mapCanvas({ rows, columns: rows, pixels, queries, keys: queries, side: 300 }, "attention weights on the first clean prompt");
}

/** @param {Node | Arrow | null} what */
function show(what) {
  const arrow = what && "side" in what ? what : null;
  const node = what && !arrow ? /** @type {Node} */ (what) : null;
  for (const [one, path] of edges) {
    const near = !what || one === arrow || (node && (one.start === node.name || one.end === node.name));
    path.classList.toggle("faint", !near);
  }
  for (const [one, shape] of shapes) shape.classList.toggle("chosen", one === node);
  fill(byId("map"));
  if (arrow) {
    fill(byId("name"), named(arrow));
    fill(byId("known"), table(["", ""], arrow.rows));
  } else if (node && node.rows) {
    fill(byId("name"), node.role ? `${node.name}, ${node.role}` : node.name);
    fill(byId("known"), table(["", ""], node.rows));
    if (node.pattern && node.pattern.length) fill(byId("map"), map(node.pattern));
  } else {
    fill(byId("name"), "The first pair");
    fill(byId("known"), make("p", {}, `${data.tokens.join(" ")} \u2192 ${data.answer.trim()}`));
  }
}

/** @param {SVGElement} element @param {Node | Arrow} what */
function listen(element, what) {
  element.setAttribute("tabindex", "0");
  element.addEventListener("mouseenter", () => { if (!held) show(what); });
  element.addEventListener("mouseleave", () => { if (!held) show(null); });
  element.addEventListener("focus", () => show(what));
  element.addEventListener("click", () => {
    held = held === what ? null : what;
    show(what);
  });
}

const svg = /** @type {SVGSVGElement} */ (draw("svg", { viewBox: `0 0 ${wide} ${high}` }));
/** @type {Map<Arrow, SVGElement>} */
const edges = new Map();
/** @type {Map<Node, SVGElement>} */
const shapes = new Map();
data.levels.forEach((name, level) => {
  if (name !== "logits") svg.append(draw("text", { class: "level", x: 4, y: high - 46 - level * RISE }, NARROW ? name.replace("layer ", "") : name));
});
for (const side of Object.keys(data.fed)) {
  svg.append(draw("defs", {}, draw("marker", { id: `tip-${side}`, viewBox: "0 0 10 10", refX: 5, refY: 5, markerWidth: 12,
    markerHeight: 12, markerUnits: "userSpaceOnUse", orient: "auto" }, draw("path", { d: "M0,0 L10,5 L0,10 z", fill: `var(--${side})` }))));
}
for (const arrow of [...data.arrows].reverse()) {
  const size = Math.abs(arrow.share) / (data.most || 1);
  const line = draw("path", { class: "edge", d: way(arrow), stroke: `var(--${arrow.side})`, "stroke-width": 1 + 7 * size,
    "stroke-opacity": 0.4 + 0.6 * size, "marker-end": `url(#tip-${arrow.side})`, "stroke-dasharray": arrow.share < 0 ? "5 4" : "none" });
  edges.set(arrow, line);
  svg.append(line);
}
for (const arrow of [...data.arrows].reverse()) {
  const hit = draw("path", { class: "hit", d: way(arrow), role: "button", "aria-label": named(arrow) });
  listen(hit, arrow);
  svg.append(hit);
}
for (const node of data.nodes) {
  const [x, y] = place(node);
  const shape = draw("g", { class: node.color ? "node" : "node quiet", role: "button", "aria-label": node.role ? `${node.name} ${node.role}` : node.name });
  const half = node.rows ? HALF : 34;
  const tall = node.rows ? TALL : 15;
  const [tone, ink] = node.color ? [node.color, inkOn(...rgb(node.color))] : ["var(--box)", "var(--text)"];
  shape.append(draw("rect", { x: x - half, y: y - tall, width: 2 * half, height: 2 * tall, rx: node.rows ? TALL : 7, fill: tone }));
  shape.append(draw("text", { x, y: node.role ? y - 7 : y, fill: ink }, node.name));
  if (node.role) shape.append(" ", draw("text", { class: "role", x, y: y + 9, fill: ink }, node.role));
  if (node.rows) listen(shape, node);
  shapes.set(node, shape);
  svg.append(shape);
}

for (const arrow of data.arrows.slice(0, NUMBERED)) {
  const [x, y] = free(arrow);
  const text = wholePercent(arrow.share);
  const half = 4 * text.length + 2;
  svg.append(draw("g", { class: "number" }, draw("rect", { x: x - half, y: y - 9, width: 2 * half, height: 18, rx: 5 }),
    draw("text", { x, y, fill: `var(--${arrow.side})` }, text)));
}

fill(byId("about"), data.title);
fill(byId("quote"), data.quote);
fill(byId("task"), data.task);
fill(byId("measured"), data.measured);
fill(byId("closing"), data.closing);
const sides = new Set(data.arrows.map((arrow) => arrow.side));
fill(byId("legend"), ...Object.entries(data.fed).filter(([side]) => sides.has(side)).map(([side, name]) => {
  const word = side === "logits" ? make("button", { type: "button", class: "term", ...term("logit") }, name) : make("span", {}, name);
  word.style.color = `var(--${side})`;
  return word;
}));
byId("graph").append(svg);
byId("curve").append(curve());
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  held = null;
  show(null);
});
/** Every edge with its figures. */
function* edgeLines() {
  yield ["start", "end", "side", "share", ...["restored", "removed"].flatMap((name) => [name, `${name}_low`, `${name}_high`]), "in_resamples"];
  for (const { start, end, side, share, numbers } of data.arrows) yield [start, end, side, String(share), ...numbers.map((value) => String(value ?? ""))];
}

startSaving("attnviz-circuit", (painter) => paintSvg(painter, svg), edgeLines, { headline: () => data.headline });
startHelpByKey([["Tab", "from head to head and edge to edge"], ["Esc", "let go"]]);
startFrame(() => show(held));
show(null);
document.documentElement.dataset.busy = "0";
