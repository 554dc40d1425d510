import { colors, data, reach, tilesOf } from "./data.js";
import { byId, fill, make } from "./dom.js";
import { MASKED } from "./masked.js";
import { shades } from "./shades.js";

/** More heads than this stand in layers that are folded. */
const FOLDED = 400;
const SMALL = 48;

/** @type {Map<number, HTMLButtonElement>} */
const buttons = new Map();
/** @type {Map<number, HTMLCanvasElement>} */
const drawn = new Map();

/** Draw the small maps that have come into sight. @type {IntersectionObserver} */
let seen;

/** A head's whole map, small: the largest weight of every few tiles. @param {number} n @param {HTMLCanvasElement} canvas */
async function draw(n, canvas) {
  const found = await tilesOf(n);
  const [down, across] = data.tiles;
  const step = Math.max(1, Math.ceil(Math.max(down, across) / SMALL));
  const [rows, columns] = [Math.ceil(down / step), Math.ceil(across / step)];
  const values = new Float32Array(rows * columns);
  const free = new Uint8Array(rows * columns);
  for (let r = 0; r < down; r++) {
    for (let c = 0; c < across; c++) {
      const at = Math.floor(r / step) * columns + Math.floor(c / step);
      values[at] = Math.max(values[at], found.largest[r * across + c]);
      free[at] |= found.allowed[r * across + c];
    }
  }
  canvas.width = columns;
  canvas.height = rows;
  const pixels = shades({ values, rows, columns, colors, root: true, factor: () => 1 / (data.heads[n].top || 1), masked: (i) => (free[i] & 1 ? 0 : free[i] & 2 ? MASKED.selected : MASKED.allowed) });
  canvas.getContext("2d")?.putImageData(new ImageData(pixels, columns, rows), 0, 0);
}

/** @param {number} n @param {(n: number) => void} choose */
function button(n, choose) {
  const known = buttons.get(n);
  if (known) return known;
  const canvas = make("canvas", { width: 1, height: 1 });
  const made = make("button", { type: "button", "aria-pressed": "false", "aria-label": `head ${data.heads[n].said.replace(/^head /, "")}`, title: data.heads[n].said, tabindex: -1 }, canvas, data.heads[n].name);
  made.addEventListener("click", () => choose(n));
  buttons.set(n, made);
  drawn.set(n, canvas);
  seen.observe(canvas);
  return made;
}

/** The heads in an order. @param {string} order @param {(n: number) => void} choose */
async function list(order, choose) {
  const all = data.heads.map((_, n) => n);
  const row = (/** @type {number[]} */ some) => make("div", { class: "row" }, ...some.map((n) => button(n, choose)));
  if (order !== "model") {
    const worth = await Promise.all(all.map(async (n) => reach(await tilesOf(n))[order === "far" ? "far" : "top"]));
    fill(byId("heads"), row(all.sort((a, b) => worth[b] - worth[a] || a - b)));
    return;
  }
  const layers = [...new Set(data.heads.map(({ layer }) => layer))];
  fill(byId("heads"), ...layers.map((layer) => {
    const some = all.filter((n) => data.heads[n].layer === layer);
    const part = make("details", { open: all.length <= FOLDED || layer === layers[0] }, make("summary", {}, `layer ${layer}`));
    const open = () => { if (part.open && part.childElementCount === 1) part.append(row(some)); };
    part.addEventListener("toggle", open);
    open();
    return part;
  }));
}

/** Say which head is chosen. @param {number} n */
export function mark(n) {
  for (const [other, made] of buttons) {
    made.setAttribute("aria-pressed", String(other === n));
    made.tabIndex = other === n ? 0 : -1;
  }
}

/** Draw the small maps again, in other colours. */
export function again() {
  for (const [n, canvas] of drawn) if (canvas.width > 1) draw(n, canvas);
}

/** @param {(n: number) => void} choose @param {() => number} chosen */
export async function startHeads(choose, chosen) {
  seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      for (const [n, canvas] of drawn) if (canvas === target) draw(n, canvas);
    }
  });
  const sort = /** @type {HTMLSelectElement} */ (byId("sort"));
  sort.addEventListener("change", async () => {
    await list(sort.value, choose);
    mark(chosen());
  });
  byId("heads").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const order = [...byId("heads").querySelectorAll("button")];
    const at = order.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    if (!step || at < 0) return;
    const next = order[Math.min(order.length - 1, Math.max(0, at + step))];
    next.click();
    next.focus();
    event.preventDefault();
  });
  await list("model", choose);
}
