import { maskedColor } from "./masked.js";
import { ramp, rgb, scheme } from "./palette.js";
import { page } from "./store.js";

/** @type {Map<string, Uint8ClampedArray>} */
const ramps = new Map();

/** The palette's 256 colours as bytes r, g, b. */
function colorsNow() {
  let found = ramps.get(scheme());
  if (!found) ramps.set(scheme(), found = ramp(page.palettes[scheme()]));
  return found;
}

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
  const colors = colorsNow();
  const pixels = new Uint8ClampedArray(4 * count * count);
  const from = head * count * count;
  const masked = rgb(maskedColor());
  for (let i = 0; i < count * count; i++) {
    const step = 3 * Math.round(255 * Math.sqrt(Math.min(1, layer[from + i])));
    const [r, g, b] = isMasked(Math.trunc(i / count), i % count) ? masked : [colors[step], colors[step + 1], colors[step + 2]];
    pixels[4 * i] = r;
    pixels[4 * i + 1] = g;
    pixels[4 * i + 2] = b;
    pixels[4 * i + 3] = 255;
  }
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
