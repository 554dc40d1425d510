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
  const pixels = shades({
    values: layer, rows: count, columns: count, from: head * count * count, colors, factor: () => 1, root: true,
    masked: page.causal ? (i) => isMasked(Math.trunc(i / count), i % count) : null,
  });
  return new ImageData(pixels, count, count);
}

/**
 * Draw a map so that it fills a canvas; large maps are shrunk smoothly, small ones keep square cells.
 * @param {HTMLCanvasElement} canvas
 * @param {ImageData} image
 * @param {number} size in CSS pixels
 * @returns {CanvasRenderingContext2D} in CSS pixels
 */
export function draw(canvas, image, size) {
  const small = new OffscreenCanvas(image.width, image.height);
  /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext("2d")).putImageData(image, 0, 0);
  const ratio = devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(size * ratio);
  canvas.style.width = canvas.style.height = `${size}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = image.width > size * ratio;
  context.drawImage(small, 0, 0, size, size);
  return context;
}
