import { arrow, clamp, fill, make, say } from "./dom.js";
import { filed, shown, signedWeight } from "./numbers.js";
import { legend } from "./legend.js";
import { maskedColor, NOT_ALLOWED } from "./masked.js";
import { cellUnder, mapCanvas, paintMap } from "./mapfigure.js";
import { fitted } from "./painter.js";
import { changeColor } from "./signed.js";
import { ramp, rootColor, scheme, tones } from "./palette.js";
import { shades } from "./shades.js";
import { bits, data, unpacked } from "./data.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./drawing.js").Painter} Painter */
/**
 * One of the three maps, ready to be drawn.
 * @typedef {import("./mapfigure.js").Labelled & { said: string, name: string, legend: { colors: string[], low: string, high: string } }} Map
 */

/** A map's side in a saved picture, the longest line above it, and what is free beside it. */
const SIDE = 250;
const LONGEST = 334;
const ALONE = 34;
/** On the page maps take a third of its width, within these. */
const [LEAST, MOST] = [200, 460];
/** Beside the cells of a map: labels, and the gap to the next. */
const BESIDE = 118;

/** The side of each of three maps beside each other. */
function side() {
  const room = document.getElementById("card")?.clientWidth || 0;
  return Math.max(LEAST, Math.min(MOST, room / 3 - BESIDE));
}

/** What is drawn of a head: its map in both runs, and their difference. @param {Head} head @param {number} [wide] the side of each */
function mapsOf(head, wide = SIDE) {
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
  /** @type {(Omit<Map, keyof import("./mapfigure.js").Labelled> & { labels: import("./types.js").Labels, pixels: Uint8ClampedArray })[]} */
  const maps = [
    { said: data.before, name: `head ${head.name} in ${data.before}`, labels: before, pixels: weight(first), legend: scale },
    { said: data.after, name: `head ${head.name} in ${data.after}`, labels: after, pixels: weight(second), legend: scale },
    {
      said: "difference: the second less the first", name: `head ${head.name}, what changed`, labels: before,
      pixels: shades({ ...size, values: moved, colors: steps, factor: () => 1 }),
      legend: { colors: ends, low: signedWeight(-most), high: `${signedWeight(most)}; blue is more in the second run` },
    },
  ];
  return { first, second, change, masked, maps: maps.map(({ labels, ...map }) => ({ ...map, ...labels, rows: head.rows, columns: head.columns, side: wide })) };
}

/** The maps of a head in both runs, and their difference. @param {Head} head @returns {HTMLElement[]} */
export function drawMaps(head) {
  const { first, second, change, masked, maps } = mapsOf(head, side());
  const [before, after] = data.sides[head.kind];
  const canvases = maps.map((map) => mapCanvas(map, map.name));
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
    const told = masked?.[cell] ? NOT_ALLOWED : `${shown(first[cell])} and then ${shown(second[cell])}, difference ${signedWeight(change[cell])}`;
    fill(line, `${name} (${at.join(", ")}): ${told}`);
  };
  for (const [n, one] of canvases.entries()) {
    one.addEventListener("pointermove", (event) => {
      const place = event.pointerType === "mouse" && !pinned && cellUnder(one, maps[n], event);
      if (place) tell(...place);
    });
    one.addEventListener("click", (event) => {
      const place = cellUnder(one, maps[n], event);
      if (!place) return;
      pinned = !(pinned && place[0] === at[0] && place[1] === at[1]);
      tell(...place);
      say(line.textContent || "");
    });
  }
  box.addEventListener("focus", () => tell(at[0], at[1]));
  box.addEventListener("keydown", (event) => {
    const way = arrow(event);
    if (!way) return;
    event.preventDefault();
    tell(at[0] + way[1], at[1] + way[0]);
    say(line.textContent || "");
  });
  return [box, line];
}

/** The three maps with their legends, for saving. @param {Painter} painter @param {Head} head */
export function drawWhole(painter, head) {
  const [text, soft] = tones("--text", "--soft");
  painter.text(`Head ${head.name}: ${data.before} and then ${data.after}`, 12, 16, { size: 14, weight: 600, color: text });
  painter.text(data.below, 12, 35, { size: 11, color: soft });
  const { maps, masked } = mapsOf(head);
  let [x, low] = [12, 0];
  for (const map of maps) {
    painter.text(fitted(painter, map.said, LONGEST, 11), x, 58, { size: 11, color: soft });
    const { width, height } = paintMap(painter, map, x, 70);
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
      ...[first, second, change].map((values) => (masked?.[cell] ? "" : filed(values[cell], 7))), masked?.[cell] ? "0" : "1"];
  }
}
