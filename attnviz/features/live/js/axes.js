import { page } from "./store.js";

/** Between the labels and the map, in CSS pixels. */
const GAP = 5;
const LARGEST = 13;

/** The room for labels beside and above maps in so much room. @param {number} room */
export function gutterFor(room) {
  return Math.round(Math.min(Math.max(room * 0.15, 46), 120));
}

/**
 * A text cut to a width, with an ellipsis where it was cut.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const parts = [...text];
  while (parts.length && context.measureText(`${parts.join("")}…`).width > width) parts.pop();
  return `${parts.join("")}…`;
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
  const ratio = devicePixelRatio || 1;
  const [width, height] = [left + size, above + size];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const style = getComputedStyle(canvas);
  const step = size / ids.length;
  const font = Math.min(Math.max(step * 0.8, 10.5), LARGEST * Math.max(1, left / 84));
  context.textBaseline = "middle";
  context.direction = "ltr";
  /**
   * @param {number | undefined} pointed
   * @param {number | null} kept
   * @param {number} room
   * @param {(place: number) => void} move
   */
  const along = (pointed, kept, room, move) => {
    const must = [pointed, kept].filter((place) => typeof place === "number");
    for (const place of labelled(ids.length, step, 1.15 * font, must)) {
      const here = place === pointed;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.font = `${here ? "700 " : ""}${font}px ${style.fontFamily}`;
      context.fillStyle = style.getPropertyValue(here ? "--text" : place === kept ? "--mark" : "--soft").trim();
      move((place + 0.5) * step);
      context.fillText(cut(context, page.labels[ids[place]], room - GAP), 0, 0);
    }
  };
  context.textAlign = "right";
  if (left) along(cell?.t, at, left, (place) => context.translate(left - GAP, above + place));
  context.textAlign = "left";
  along(cell?.s, key, above, (place) => {
    context.translate(left + place, above - GAP);
    context.rotate(-Math.PI / 2);
  });
}
