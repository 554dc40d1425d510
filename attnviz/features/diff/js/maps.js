import { clamp, fill, make, say, shown } from "./dom.js";
import { legend } from "./legend.js";
import { maskedColor, NOT_ALLOWED } from "./masked.js";
import { fitted, prepared } from "./painter.js";
import { changeColor } from "./signed.js";
import { ramp, rootColor, scheme } from "./palette.js";
import { shades } from "./shades.js";
import { bits, data, signed, unpacked } from "./data.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./drawing.js").Painter} Painter */
/**
 * One of the three maps, ready to be drawn.
 * @typedef {{ said: string, name: string, labels: import("./types.js").Labels, pixels: Uint8ClampedArray, legend: { colors: string[], low: string, high: string } }} Map
 */

const SIDE = 250;
const LABELLED = 40;
/** No label is longer than so many pixels. */
const LONGEST = 84;
const ALONE = 34;

/** What is drawn of a head: its map in both runs, and their difference. @param {Head} head */
function mapsOf(head) {
  const first = unpacked(head.first);
  const change = unpacked(head.change);
  const second = first.map((value, n) => value + change[n]);
  const masked = bits(head.masked, first.length);
  const most = change.reduce((found, value) => Math.max(found, Math.abs(value)), 0);
  const top = Math.max(...[first, second].map((values) => values.reduce((a, b) => Math.max(a, b), 0)));
  const ends = data.signed[scheme()];
  const size = { rows: head.rows, columns: head.columns, masked: masked && ((/** @type {number} */ cell) => masked[cell]) };
  /** @param {Float32Array} values */
  const weight = (values) => shades({ ...size, values, colors: ramp(data.palette), factor: () => 1 / (top || 1), root: true });
  const steps = Uint8ClampedArray.from(Array.from({ length: 256 }, (_, i) => changeColor(ends, i / 127.5 - 1)).flat());
  const moved = change.map((value) => (most ? (value / most + 1) / 2 : 0.5));
  const scale = { colors: data.palette, low: "0", high: `${shown(top)}, by the square root of the weight` };
  const [before, after] = data.sides[head.kind];
  /** @type {Map[]} */
  const maps = [
    { said: data.before, name: `head ${head.name} in ${data.before}`, labels: before, pixels: weight(first), legend: scale },
    { said: data.after, name: `head ${head.name} in ${data.after}`, labels: after, pixels: weight(second), legend: scale },
    {
      said: "difference: the second less the first", name: `head ${head.name}, what changed`, labels: before,
      pixels: shades({ ...size, values: moved, colors: steps, factor: () => 1 }),
      legend: { colors: ends, low: signed(-most), high: `${signed(most)}; blue is more in the second run` },
    },
  ];
  return { first, second, change, masked, maps };
}

/** The maps of a head in both runs, and their difference. @param {Head} head @returns {HTMLElement[]} */
export function drawMaps(head) {
  const { first, second, change, masked, maps } = mapsOf(head);
  const [before, after] = data.sides[head.kind];
  const canvases = maps.map((map) => canvas(head, map));
  const figures = maps.map((map, n) => make("figure", {}, make("figcaption", {}, map.said), canvases[n], make("div", { class: "legend" }, ...legend(map.legend.colors, map.legend.low, map.legend.high, Boolean(masked)))));
  const box = make("div", { id: "maps", tabindex: 0, role: "group", "aria-label": "three maps, rows are queries and columns keys; arrow keys go from cell to cell" }, ...figures);
  const line = make("p", { id: "cell", class: "small" }, "Point at a cell or tap it, or go there with the arrow keys.");
  let at = [0, 0];
  let pinned = false;
  /** @param {number} row @param {number} column */
  const tell = (row, column) => {
    at = [clamp(row, 0, head.rows - 1), clamp(column, 0, head.columns - 1)];
    const cell = at[0] * head.columns + at[1];
    const names = [before, after].map(({ queries, keys }) => `${queries[at[0]]} → ${keys[at[1]]}`);
    const name = names[0] === names[1] ? names[0] : names.join(" and ");
    const told = masked?.[cell] ? NOT_ALLOWED : `${shown(first[cell])} and then ${shown(second[cell])}, difference ${signed(change[cell])}`;
    fill(line, `${name} (${at.join(", ")}): ${told}`);
  };
  for (const one of canvases) {
    one.addEventListener("pointermove", (event) => {
      const place = event.pointerType === "mouse" && !pinned && placed(one, event, head);
      if (place) tell(...place);
    });
    one.addEventListener("click", (event) => {
      const place = placed(one, event, head);
      if (!place) return;
      pinned = !(pinned && place[0] === at[0] && place[1] === at[1]);
      tell(...place);
      say(line.textContent || "");
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

/** The cell under a pointer. @param {HTMLCanvasElement} one @param {MouseEvent} event @param {Head} head @returns {[number, number] | null} */
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
 * Where a map's cells are, with its tokens beside them where they are few enough to be read.
 * @param {Painter} painter
 * @param {Head} head
 * @param {Map} map
 */
function placesOf(painter, { rows, columns }, { labels }) {
  const cell = SIDE / Math.max(rows, columns);
  const written = Math.max(rows, columns) <= LABELLED;
  const letters = Math.min(11, cell);
  /** @param {string[]} names */
  const room = (names) => (written ? 8 + Math.min(LONGEST, Math.max(...names.map((name) => painter.measure(name, letters)))) : 0);
  const [left, top] = [room(labels.queries), room(labels.keys)];
  return { cell, written, letters, left, top, width: left + cell * columns, height: top + cell * rows };
}

/**
 * @param {Painter} painter
 * @param {Head} head
 * @param {Map} map
 * @param {number} x
 * @param {number} y
 */
function paint(painter, head, map, x, y) {
  const { cell, written, letters, left, top, width, height } = placesOf(painter, head, map);
  const color = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
  painter.image(map.pixels, head.rows, head.columns, x + left, y + top, cell * head.columns, cell * head.rows);
  if (written) {
    const { queries, keys } = map.labels;
    queries.forEach((name, n) => painter.text(fitted(painter, name, LONGEST, letters), x + left - 4, y + top + (n + 0.5) * cell, { size: letters, align: "right", color }));
    keys.forEach((name, n) => painter.text(fitted(painter, name, LONGEST, letters), x + left + (n + 0.5) * cell, y + top - 4, { size: letters, color, turn: true }));
  }
  return { width, height };
}

/** @param {Head} head @param {Map} map */
function canvas(head, map) {
  const { rows, columns } = head;
  const found = make("canvas");
  const { cell, left, top, width, height } = placesOf(prepared(found, 1, 1), head, map);
  const attributes = { role: "img", "aria-label": `${map.name}: ${rows} queries, ${columns} keys`, "data-left": left, "data-top": top, "data-cell": cell, "data-width": width };
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, String(value));
  paint(prepared(found, width, height), head, map, 0, 0);
  found.style.height = "";
  return found;
}

/**
 * The three maps with their legends, for saving.
 * @param {Painter} painter
 * @param {Head} head
 */
export function drawWhole(painter, head) {
  const style = getComputedStyle(document.documentElement);
  const [text, soft] = ["--text", "--soft"].map((name) => style.getPropertyValue(name).trim());
  painter.text(`Head ${head.name}: ${data.before} and then ${data.after}`, 12, 16, { size: 14, weight: 600, color: text });
  painter.text(data.below, 12, 35, { size: 11, color: soft });
  const { maps, masked } = mapsOf(head);
  let [x, low] = [12, 0];
  for (const map of maps) {
    painter.text(fitted(painter, map.said, SIDE + LONGEST, 11), x, 58, { size: 11, color: soft });
    const { width, height } = paint(painter, head, map, x, 70);
    const { colors, low: from, high } = map.legend;
    const y = 70 + height + 14;
    painter.text(from, x, y, { size: 10.5, color: soft });
    const at = x + painter.measure(from, 10.5) + 6;
    for (let i = 0; i < 60; i += 1) {
      const color = map === maps[2] ? `rgb(${changeColor(colors, i / 29.5 - 1)})` : rootColor(colors, (i / 59) ** 2);
      painter.rect(at + 2 * i, y - 5, 2.5, 10, color);
    }
    painter.text(high, at + 126, y, { size: 10.5, color: soft });
    if (masked) {
      painter.rect(x, y + 12, 11, 11, maskedColor());
      painter.text(NOT_ALLOWED, x + 16, y + 18, { size: 10.5, color: soft });
    }
    low = Math.max(low, y + 34);
    x += Math.max(width, 132 + painter.measure(high, 10.5) + 30) + ALONE;
  }
  return { width: x, height: low };
}

/** Both weights of every cell of a head and their difference, a line each. @param {Head} head */
export function* numbers(head) {
  const { first, second, change, masked } = mapsOf(head);
  const [before, after] = data.sides[head.kind];
  yield ["query_index", "query", "key_index", "key", "second_query", "second_key", "first", "second", "difference", "allowed"];
  for (let cell = 0; cell < first.length; cell += 1) {
    const [r, c] = [Math.floor(cell / head.columns), cell % head.columns];
    yield [String(r), before.queries[r], String(c), before.keys[c], after.queries[r], after.keys[c],
      ...[first, second, change].map((values) => String(Number(values[cell].toPrecision(7)))), masked?.[cell] ? "0" : "1"];
  }
}
