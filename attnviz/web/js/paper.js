import { byId, clamp, fill, make } from "./dom.js";
import { madeLine } from "./made.js";
import { fixed } from "./numbers.js";
import { broken, canvasPainter, svgPainter } from "./painter.js";
import { withTexts } from "./pngchunks.js";

/** @typedef {import("./drawing.js").Painter} Painter */
/**
 * A figure of a page.
 * @typedef {object} Figure
 * @property {(painter: Painter, width: number) => { width: number, height: number }} draw light, with labels of `LABEL` pixels; `width` pixels wide where it can be
 * @property {() => string} caption what stands below it
 * @property {() => string} name of its file, without what comes after the dot
 * @property {(blob: Blob, name: string) => void} hand to the browser
 */

/** The size of labels in drawings, in pixels. */
const LABEL = 11.5;
/** Columns of a journal, in millimetres. */
const COLUMNS = [84, 174];
const POINTS_A_MM = 72 / 25.4;
/** No side of a PNG is longer than what browsers can draw. */
const LONGEST = 12000;
const PAD = 6;
const LINE = 1.35;

/**
 * The figure in its frame: scaled to a width, with its caption below.
 * @param {Figure} figure
 * @param {{ mm: number, points: number, caption: string }} asked
 */
function laid(figure, { mm, points, caption }) {
  // so many pixels wide, labels have the points that are asked for
  const wide = (mm * POINTS_A_MM * LABEL) / points;
  const ruler = svgPainter();
  const own = figure.draw(ruler, wide);
  const whole = Math.max(wide, own.width);
  const printed = (points * wide) / whole;
  const size = (LABEL * whole) / wide;
  const lines = broken(ruler, caption, whole - 2 * PAD, size);
  const height = own.height + (lines.length ? PAD + lines.length * size * LINE : 0) + PAD;
  /** @param {Painter} painter */
  const draw = (painter) => {
    figure.draw(painter, wide);
    lines.forEach((line, n) => painter.text(line, PAD, own.height + PAD + (n + 0.5) * size * LINE, { size, color: "#16191f" }));
  };
  return { draw, width: whole, height, printed };
}

/** Draw as on paper, in light colours, whatever the page's theme. @template T @param {() => T} draw @returns {T} */
function light(draw) {
  const root = document.documentElement;
  const before = root.dataset.print;
  root.dataset.print = "";
  try {
    return draw();
  } finally {
    if (before === undefined) delete root.dataset.print;
    else root.dataset.print = before;
  }
}

/**
 * A dialog behind a button of the menu that saves: the figure at its width in print, with a caption.
 * @param {Figure} figure
 */
export function startPaper(figure) {
  const button = make("button", { type: "button", id: "save-paper", title: "a figure at its width in print, with a caption" }, "for a paper …");
  /** @type {HTMLElement} */ (document.querySelector("#save .menu-inside")).append(button);
  const width = make("select", { id: "paper-width" }, ...COLUMNS.map((mm) => make("option", { value: mm }, `${mm} mm`)), make("option", { value: "" }, "other"));
  const own = make("input", { id: "paper-mm", type: "number", min: 20, max: 600, value: 120, "aria-label": "width in millimetres" });
  const points = make("input", { id: "paper-points", type: "number", min: 5, max: 14, step: 0.5, value: 8 });
  const dpi = make("select", { id: "paper-dpi" }, ...[300, 600, 1200].map((count) => make("option", { value: count }, String(count))));
  const caption = make("textarea", { id: "paper-caption", rows: 4 });
  const shown = make("div", { id: "paper-shown", tabindex: 0, role: "region", "aria-label": "the figure at its size" });
  const said = make("p", { class: "small", id: "paper-said", role: "status" });
  const dialog = make("dialog", { id: "paper", "aria-labelledby": "paper-title" },
    make("h2", { id: "paper-title" }, "A figure for a paper"),
    make("div", { class: "line" }, make("label", { for: "paper-width" }, "Width"), width, own, make("label", { for: "paper-points" }, "Text, points"), points, make("label", { for: "paper-dpi" }, "PNG, dpi"), dpi),
    make("label", { for: "paper-caption" }, "Caption"), caption, shown, said,
    make("div", { class: "buttons" }, make("button", { type: "button", id: "paper-svg" }, "SVG"), make("button", { type: "button", id: "paper-png" }, "PNG"), make("button", { type: "button", id: "paper-close" }, "close")));
  document.body.append(dialog);

  const asked = () => ({
    mm: clamp(Number(width.value || own.value) || COLUMNS[0], 20, 600),
    points: clamp(Number(points.value) || 8, 5, 14),
    caption: caption.value,
  });
  const svg = () => light(() => {
    const { mm } = asked();
    const whole = laid(figure, asked());
    const painter = svgPainter();
    whole.draw(painter);
    const text = painter.finish(whole.width, whole.height, "#ffffff", document.title, madeLine());
    const high = (mm * Math.ceil(whole.height)) / Math.ceil(whole.width);
    return { ...whole, text: text.replace(/ width="\d+" height="\d+"/, ` width="${mm}mm" height="${fixed(high, 2)}mm"`) };
  });
  const preview = () => {
    own.hidden = width.value !== "";
    const { text, printed } = svg();
    fill(shown, new DOMParser().parseFromString(text, "image/svg+xml").documentElement);
    said.textContent = `Text of ${fixed(printed, 1)} points in print${printed < 6.95 ? "; a wider figure or fewer tokens make it larger" : ""}.`;
  };
  const png = () => light(() => {
    const { mm } = asked();
    const whole = laid(figure, asked());
    const ratio = Math.min((mm / 25.4) * Number(dpi.value) / whole.width, LONGEST / whole.width, LONGEST / whole.height);
    const canvas = make("canvas", { width: Math.round(whole.width * ratio), height: Math.round(whole.height * ratio) });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.scale(ratio, ratio);
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, whole.width, whole.height);
    whole.draw(canvasPainter(context));
    return canvas;
  });

  button.addEventListener("click", () => {
    caption.value = figure.caption();
    /** @type {HTMLDetailsElement} */ (byId("save")).open = false;
    dialog.showModal();
    preview();
  });
  for (const field of [width, own, points, caption]) field.addEventListener("input", preview);
  byId("paper-close").addEventListener("click", () => dialog.close());
  byId("paper-svg").addEventListener("click", () => figure.hand(new Blob([svg().text], { type: "image/svg+xml" }), `${figure.name()}.svg`));
  byId("paper-png").addEventListener("click", async () => {
    const canvas = png();
    /** @type {Blob | null} */
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    if (blob) figure.hand(await withTexts(blob, { Software: "attnviz", Description: `${caption.value} ${madeLine()}`.trim() }, canvas.width / (asked().mm / 25.4)), `${figure.name()}.png`);
  });
}
