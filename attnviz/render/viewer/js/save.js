import { byId, make } from "./dom.js";
import { itemOf, kindOf } from "./data.js";
import { get } from "./store.js";
import { ink } from "./colors.js";
import { canvasPainter, svgPainter } from "./painter.js";
import { failed } from "./busy.js";

/** @typedef {import("./types.js").View} View */

/** No side of a PNG is longer than what browsers can draw. */
const LONGEST = 8000;

/**
 * @param {Blob} blob
 * @param {string} suffix
 */
function download(blob, suffix) {
  const state = get();
  const what = state.view === "overview" ? "overview" : state.on.length === 1 ? `head-${state.view === "card" ? state.head : state.on[0]}` : `${state.on.length}-heads`;
  const kind = itemOf(state).kinds.length > 1 ? `-${kindOf(state).kind}` : "";
  const link = make("a", { href: URL.createObjectURL(blob), download: `attnviz-${state.view === "overview" ? "" : `${state.view}-`}${what}${kind}.${suffix}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** @param {() => View} current the view that is open */
export function startSave(current) {
  byId("save-svg").addEventListener("click", () => {
    const painter = svgPainter();
    const { width, height } = current().picture(painter, get());
    const text = painter.finish(width, height, ink().paper, document.title);
    download(new Blob([text], { type: "image/svg+xml" }), "svg");
  });
  byId("save-png").addEventListener("click", () => {
    const trial = /** @type {CanvasRenderingContext2D} */ (make("canvas").getContext("2d"));
    const size = current().picture(canvasPainter(trial), get());
    const [width, height] = [Math.ceil(size.width), Math.ceil(size.height)];
    const ratio = Math.min(2, LONGEST / width, LONGEST / height);
    const canvas = make("canvas", { width: Math.ceil(width * ratio), height: Math.ceil(height * ratio) });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.scale(ratio, ratio);
    context.fillStyle = ink().paper;
    context.fillRect(0, 0, width, height);
    current().picture(canvasPainter(context), get());
    canvas.toBlob((blob) => (blob ? download(blob, "png") : failed("the picture is too large; hide some tokens")), "image/png");
  });
  byId("save-csv").addEventListener("click", () => {
    const text = current().numbers(get()).map((line) => line.map(quoted).join(",")).join("\r\n");
    download(new Blob([`${text}\r\n`], { type: "text/csv;charset=utf-8" }), "csv");
  });
}

/** @param {string} value */
function quoted(value) {
  return /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}
