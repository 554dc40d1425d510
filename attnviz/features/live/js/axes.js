import { fitted, prepared } from "./painter.js";
import { page } from "./store.js";

/** Between the labels and the map, in CSS pixels. */
const GAP = 5;
const LARGEST = 13;

/** The room for labels beside and above maps in so much room. @param {number} room */
export function gutterFor(room) {
  return Math.round(Math.min(Math.max(room * 0.15, 46), 120));
}

/**
 * Which places are labelled: first those that must be, then one in so many that is not too near to them.
 * @param {number} count
 * @param {number} step between places, in CSS pixels
 * @param {number} line of text
 * @param {number[]} must
 */
function labelled(count, step, line, must) {
  const every = Math.max(1, Math.ceil(line / step));
  /** @type {number[]} */
  const kept = [];
  /** @param {number} place */
  const free = (place) => kept.every((one) => Math.abs(one - place) >= every);
  for (const place of must) if (place < count && free(place)) kept.push(place);
  const others = Array.from({ length: Math.ceil(count / every) }, (_, n) => n * every);
  return [...kept, ...others.filter(free)];
}

/**
 * The tokens beside and above a map, which stands in the lower right of this canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {object} given
 * @param {number[]} given.ids
 * @param {number} given.size of the map, in CSS pixels
 * @param {number} given.left room for the queries; 0 for none
 * @param {number} given.above room for the keys
 * @param {number} given.at the row that is shown
 * @param {number | null} given.key that was chosen in it
 * @param {{ t: number, s: number } | null} given.cell that is pointed at
 */
export function drawAxes(canvas, { ids, size, left, above, at, key, cell }) {
  const painter = prepared(canvas, left + size, above + size);
  const style = getComputedStyle(canvas);
  const step = size / ids.length;
  const font = Math.min(Math.max(step * 0.8, 10.5), LARGEST * Math.max(1, left / 84));
  /** @param {number | undefined} pointed @param {number | null} kept @param {number} room @param {boolean} turn */
  const along = (pointed, kept, room, turn) => {
    const must = [pointed, kept].filter((place) => typeof place === "number");
    for (const place of labelled(ids.length, step, 1.15 * font, must)) {
      const here = place === pointed;
      const [x, y] = turn ? [left + (place + 0.5) * step, above - GAP] : [left - GAP, above + (place + 0.5) * step];
      const color = style.getPropertyValue(here ? "--text" : place === kept ? "--mark" : "--soft").trim();
      painter.text(fitted(painter, page.labels[ids[place]], room - GAP, font), x, y, { size: font, color, align: turn ? "left" : "right", weight: here ? 700 : 400, turn });
    }
  };
  if (left) along(cell?.t, at, left, false);
  along(cell?.s, key, above, true);
}
