import { prepared } from "./painter.js";
import { ramp } from "./palette.js";
import { shades } from "./shades.js";
import { page } from "./store.js";

const colors = ramp(page.palette);

/** Whether a query may not attend to a key. @param {number} t @param {number} s */
export function isMasked(t, s) {
  return page.causal && s > t;
}

/**
 * One head's map as a picture, a pixel a weight. Colours go by the square root of the weight, so
 * that small ones show, up to the largest of all heads' possible weights, 1; keys that may not be
 * attended to have a colour of their own.
 * @param {Float32Array} layer [heads, tokens, tokens]
 * @param {number} head
 * @param {number} count tokens
 */
export function picture(layer, head, count) {
  return shades({
    values: layer, rows: count, columns: count, from: head * count * count, colors, factor: () => 1, root: true,
    // a bug may let a later token in
    masked: page.causal ? (i) => isMasked(Math.trunc(i / count), i % count) && !layer[head * count * count + i] : null,
  });
}

/**
 * Draw a map so that it fills a canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {Uint8ClampedArray} pixels of a square map
 * @param {number} count tokens
 * @param {number} size in CSS pixels
 */
export function draw(canvas, pixels, count, size) {
  const painter = prepared(canvas, size, size);
  painter.image(pixels, count, count, 0, 0, size, size);
  return painter;
}
