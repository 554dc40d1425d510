import { colors, data, KEYS, keys, LENGTH, queries, ROWS } from "./data.js";
import { thousands } from "./numbers.js";
import { shades } from "./shades.js";

/** @typedef {import("./types.js").Cells} Cells */
/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Painter} Painter */

/** Room for the labels of both axes. */
export const LEFT = 96;
export const BELOW = 92;
export const ABOVE = 8;
/** Half a label stands over the edge. */
export const RIGHT = 8;
const MOST_LABELS = 36;

/** Pixels of cells. @param {Cells} cells @param {boolean} sum @param {number} head @param {boolean} all whether the whole map is in sight */
function coloured(cells, sum, head, all) {
  const top = topOf(cells, sum, head, all);
  return shades({ ...cells, colors, root: true, factor: () => 1 / top, masked: (i) => cells.masked[i] });
}

/** The weight of the full colour: the head's largest, or of sums and of parts the largest in sight. @param {Cells} cells @param {boolean} sum @param {number} head @param {boolean} all whether the whole map is in sight */
export function topOf(cells, sum, head, all) {
  if (!sum && all) return data.heads[head].top || 1;
  return cells.values.reduce((a, b) => Math.max(a, b), 0) || 1;
}

/** A token between blanks, so that it can be read. @param {string} text */
export function word(text) {
  return text.replaceAll("·", " ").trim() || text;
}

/**
 * A part of the map, with its axes.
 * @param {Painter} painter @param {Cells} cells @param {Part} part @param {boolean} sum @param {number} head
 * @param {number} side of the map itself @param {{ text: string, soft: string, mark: string, line: string }} tones
 * @param {[number, number] | null} held a cell
 */
export function drawMap(painter, cells, part, sum, head, side, tones, held) {
  const box = side / (part.side / cells.cell);
  const [wide, high] = [box * cells.columns, box * cells.rows];
  painter.image(coloured(cells, sum, head, part.side >= LENGTH), cells.rows, cells.columns, LEFT, ABOVE, wide, high);
  const room = Math.max(1, Math.floor(Math.min(MOST_LABELS, side / 14)));
  let step = cells.cell;
  while (part.side / step > room) step *= 2;
  const named = step * 16 <= part.side * 16 && cells.cell <= 4;
  const label = (/** @type {string[]} */ texts, /** @type {number} */ at) => `${named ? `${word(texts[at]).slice(0, 9)} ` : ""}${thousands(at)}`;
  for (let at = 0; at < part.side; at += step) {
    const y = ABOVE + ((at / cells.cell) + 0.5) * box;
    const x = LEFT + ((at / cells.cell) + 0.5) * box;
    if (part.row + at < ROWS.to) painter.text(label(queries, part.row + at), LEFT - 5, y, { size: 11, color: tones.soft, align: "right" });
    if (part.key + at < KEYS.to) painter.text(label(keys, part.key + at), x, ABOVE + high + 5, { size: 11, color: tones.soft, align: "right", turn: true });
  }
  if (held) {
    const [r, c] = held.map((at, n) => (at - (n ? part.key : part.row)) / cells.cell);
    if (r >= 0 && c >= 0 && r < cells.rows && c < cells.columns) {
      const [x, y] = [LEFT + Math.floor(c) * box, ABOVE + Math.floor(r) * box];
      for (const [a, b, d, e] of [[0, 0, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 0, 0]]) {
        painter.line(x - 1 + a * (box + 2), y - 1 + b * (box + 2), x - 1 + d * (box + 2), y - 1 + e * (box + 2), tones.mark, 2);
      }
    }
  }
  return { width: LEFT + side + RIGHT, height: ABOVE + side + BELOW };
}
