import { clamp, fill, make, say, shown } from "./dom.js";
import { changeColor } from "./signed.js";
import { rootColor, scheme } from "./palette.js";
import { data, signed, unpacked } from "./data.js";

/** @typedef {import("./types.js").Head} Head */

const SIDE = 250;
const LABELLED = 40;
const LONGEST = 12;
const LETTER = 6.2;

/** The maps of a head in both runs, and their difference. @param {Head} head @returns {HTMLElement[]} */
export function drawMaps(head) {
  const first = unpacked(head.first);
  const change = unpacked(head.change);
  const second = first.map((value, n) => value + change[n]);
  const most = change.reduce((found, value) => Math.max(found, Math.abs(value)), 0);
  const top = Math.max(...[first, second].map((values) => values.reduce((a, b) => Math.max(a, b), 0)));
  const { palettes, signed: ends, sides } = data;
  const weights = palettes[scheme()];
  const colors = ends[scheme()];
  /** @param {number} value */
  const weight = (value) => rootColor(weights, value / (top || 1));
  /** @param {number} value */
  const tint = (value) => `rgb(${changeColor(colors, most ? value / most : 0)})`;
  const [before, after] = sides[head.kind];
  const canvases = [
    canvas(head, first, weight, before, `head ${head.name} in ${data.before}`),
    canvas(head, second, weight, after, `head ${head.name} in ${data.after}`),
    canvas(head, change, tint, before, `head ${head.name}, what changed`),
  ];
  const scale = legend(weights, "0", `${shown(top)}, by the square root of the weight`);
  const difference = legend(colors, signed(-most), `${signed(most)}; blue is more in the second run`);
  const figures = [data.before, data.after, "difference: the second less the first"].map((said, n) =>
    make("figure", {}, make("figcaption", {}, said), canvases[n], n < 2 ? scale.cloneNode(true) : difference));
  const box = make("div", { id: "maps", tabindex: 0, role: "group", "aria-label": "three maps, rows are queries and columns keys; arrow keys go from cell to cell" }, ...figures);
  const line = make("p", { id: "cell", class: "small" }, "Point at a cell, or go there with the arrow keys.");
  let at = [0, 0];
  /** @param {number} row @param {number} column */
  const tell = (row, column) => {
    at = [clamp(row, 0, head.rows - 1), clamp(column, 0, head.columns - 1)];
    const cell = at[0] * head.columns + at[1];
    const names = [before, after].map(({ queries, keys }) => `${queries[at[0]]} → ${keys[at[1]]}`);
    const name = names[0] === names[1] ? names[0] : names.join(" and ");
    fill(line, `${name} (${at.join(", ")}): ${shown(first[cell])} and then ${shown(second[cell])}, difference ${signed(change[cell])}`);
  };
  for (const one of canvases) {
    one.addEventListener("pointermove", (event) => {
      const place = placed(one, event, head);
      if (place) tell(...place);
    });
  }
  box.addEventListener("focus", () => tell(at[0], at[1]));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    tell(at[0] + step[0], at[1] + step[1]);
    say(line.textContent || "");
  });
  return [box, line];
}

/** The cell under a pointer. @param {HTMLCanvasElement} one @param {PointerEvent} event @param {Head} head @returns {[number, number] | null} */
function placed(one, event, head) {
  const box = one.getBoundingClientRect();
  const [left, top] = [Number(one.dataset.left), Number(one.dataset.top)];
  const scale = Number(one.dataset.width) / box.width;
  const [x, y] = [(event.clientX - box.left) * scale - left, (event.clientY - box.top) * scale - top];
  const size = Number(one.dataset.cell);
  const [row, column] = [Math.floor(y / size), Math.floor(x / size)];
  return row >= 0 && column >= 0 && row < head.rows && column < head.columns ? [row, column] : null;
}

/**
 * A map with its tokens beside it, where they are few enough to be read.
 * @param {Head} head
 * @param {Float32Array} values
 * @param {(value: number) => string} color
 * @param {import("./types.js").Labels} labels
 * @param {string} said
 */
function canvas(head, values, color, labels, said) {
  const { rows, columns } = head;
  const size = SIDE / Math.max(rows, columns);
  const written = Math.max(rows, columns) <= LABELLED;
  /** @param {string[]} names */
  const room = (names) => (written ? 6 + LETTER * Math.max(...names.map((name) => Math.min(name.length, LONGEST))) : 0);
  const [left, top] = [room(labels.queries), room(labels.keys)];
  const [width, height] = [left + size * columns, top + size * rows];
  const found = make("canvas", { role: "img", "aria-label": `${said}: ${rows} queries, ${columns} keys`, "data-left": left, "data-top": top, "data-cell": size, "data-width": width });
  const ratio = devicePixelRatio || 1;
  [found.width, found.height] = [width * ratio, height * ratio];
  found.style.width = `${width}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (found.getContext("2d"));
  context.scale(ratio, ratio);
  for (let cell = 0; cell < values.length; cell += 1) {
    context.fillStyle = color(values[cell]);
    context.fillRect(left + (cell % columns) * size, top + Math.floor(cell / columns) * size, size + 0.5, size + 0.5);
  }
  if (!written) return found;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
  context.font = `${Math.min(11, size)}px ui-monospace, monospace`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const [n, name] of labels.queries.entries()) context.fillText(cut(name), left - 3, top + (n + 0.5) * size);
  context.textAlign = "left";
  for (const [n, name] of labels.keys.entries()) {
    context.save();
    context.translate(left + (n + 0.5) * size, top - 3);
    context.rotate(-Math.PI / 2);
    context.fillText(cut(name), 0, 0);
    context.restore();
  }
  return found;
}

/** @param {string} name */
function cut(name) {
  return name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name;
}

/** @param {string[]} colors @param {string} low @param {string} high */
function legend(colors, low, high) {
  const bar = make("i", {});
  bar.style.background = `linear-gradient(to right, ${colors.join(", ")})`;
  return make("div", { class: "legend" }, low, bar, high);
}
