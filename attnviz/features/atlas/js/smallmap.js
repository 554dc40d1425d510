import { data } from "./data.js";
import { make } from "./dom.js";
import { ramp } from "./palette.js";
import { shades } from "./shades.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").HeadMap} HeadMap */

/** Whether keys behind a query are not allowed in a head's example. @param {Head} head @param {HeadMap} map */
export function isCausal(head, { queries, keys }) {
  return head.site === "decoder" && queries.length === keys.length;
}

/** The pixels of a head's example, by the square root. @param {Head} head @param {HeadMap} map */
export function pixelsOf(head, map) {
  const [rows, columns] = [map.queries.length, map.keys.length];
  return shades({
    values: map.weights.flat(), rows, columns, colors: ramp(data.palette), factor: () => 1 / 1000, root: true,
    masked: isCausal(head, map) ? (i) => i % columns > Math.trunc(i / columns) : null,
  });
}

/** A head's example without its tokens, a pixel a weight. @param {Head} head @param {HeadMap} map */
export function smallMap(head, map) {
  const canvas = make("canvas", { width: map.keys.length, height: map.queries.length, "aria-hidden": "true" });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.putImageData(new ImageData(pixelsOf(head, map), canvas.width, canvas.height), 0, 0);
  return canvas;
}
