import { make } from "./dom.js";
import { plural } from "./numbers.js";
import { fitted, prepared } from "./painter.js";
import { tones } from "./palette.js";

/** @typedef {import("./drawing.js").Painter} Painter */
/**
 * A map to be drawn with its tokens; `side` is the longer one's, in CSS pixels, and a row may be marked.
 * @typedef {object} Labelled
 * @property {number} rows
 * @property {number} columns
 * @property {Uint8ClampedArray} pixels
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {number} side
 * @property {number} [marked]
 */

/** Tokens are written where a side has no more of them. */
const LABELLED = 40;
/** No label is longer than so many pixels, nor are its letters larger. */
const LONGEST = 84;
const LETTERS = 11;

/**
 * Where a map's cells are, with its tokens beside them where they are few enough to be read.
 * @param {Painter} painter
 * @param {Labelled} map
 */
export function placesOf(painter, { rows, columns, queries, keys, side }) {
  const cell = side / Math.max(rows, columns);
  const written = Math.max(rows, columns) <= LABELLED;
  const letters = Math.min(LETTERS, cell);
  /** @param {string[]} names */
  const room = (names) => (written ? 8 + Math.min(LONGEST, Math.max(...names.map((name) => painter.measure(name, letters)))) : 0);
  const [left, top] = [room(queries), room(keys)];
  return { cell, written, letters, left, top, width: left + cell * columns, height: top + cell * rows };
}

/**
 * A map with its tokens: the one way in which pages draw one that does not zoom.
 * @param {Painter} painter
 * @param {Labelled} map
 * @param {number} x
 * @param {number} y
 */
export function paintMap(painter, map, x, y) {
  const { cell, written, letters, left, top, width, height } = placesOf(painter, map);
  const { rows, columns, pixels, queries, keys, marked } = map;
  painter.image(pixels, rows, columns, x + left, y + top, cell * columns, cell * rows);
  if (written) {
    const [ink, own] = tones("--text", "--mark");
    queries.forEach((name, n) => painter.text(fitted(painter, name, LONGEST, letters), x + left - 4, y + top + (n + 0.5) * cell, { size: letters, align: "right", color: n === marked ? own : ink, weight: n === marked ? 700 : 400 }));
    keys.forEach((name, n) => painter.text(fitted(painter, name, LONGEST, letters), x + left + (n + 0.5) * cell, y + top - 4, { size: letters, color: ink, turn: true }));
  }
  if (marked !== undefined) {
    for (const edge of [marked, marked + 1]) painter.line(x + left, y + top + edge * cell, x + left + cell * columns, y + top + edge * cell, tones("--mark")[0], 1.5);
  }
  return { width, height };
}

/** A map on a canvas of its own. @param {Labelled} map @param {string} name for who cannot see it */
export function mapCanvas(map, name) {
  const found = make("canvas", { role: "img", "aria-label": `${name}: ${plural(map.rows, "query")}, ${plural(map.columns, "key")}` });
  const { width, height } = placesOf(prepared(found, 1, 1), map);
  paintMap(prepared(found, width, height), map, 0, 0);
  found.style.height = "";
  return found;
}

/**
 * The cell of a map under a pointer.
 * @param {HTMLCanvasElement} canvas
 * @param {Labelled} map
 * @param {MouseEvent} event
 * @returns {[number, number] | null}
 */
export function cellUnder(canvas, map, event) {
  const box = canvas.getBoundingClientRect();
  const { cell, left, top, width } = placesOf(prepared(make("canvas"), 1, 1), map);
  const scale = width / box.width;
  const [row, column] = [(event.clientY - box.top) * scale - top, (event.clientX - box.left) * scale - left].map((at) => Math.floor(at / cell));
  return row >= 0 && column >= 0 && row < map.rows && column < map.columns ? [row, column] : null;
}
