import { make } from "./dom.js";
import { csvLine } from "./csv.js";
import { madeLine } from "./made.js";
import { startPaper } from "./paper.js";
import { startShareCard } from "./sharecard.js";
import { withTexts } from "./pngchunks.js";
import { canvasPainter, svgPainter } from "./painter.js";
import { draw } from "./svg.js";

/** @typedef {import("./drawing.js").Painter} Painter */
/** Draws all of something and gives the size that it needs. @typedef {(painter: Painter) => { width: number, height: number }} Picture */

/** No side of a PNG is longer than what browsers can draw. */
const LONGEST = 8000;
/** Pixels each way for one of an SVG that becomes a picture. */
const SHARP = 3;

/** Hand a file to the browser. @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * A drawing as SVG.
 * @param {Picture} picture
 * @param {string} paper its colour
 */
export function svgOf(picture, paper) {
  const painter = svgPainter();
  const { width, height } = picture(painter);
  return painter.finish(width, height, paper, document.title, madeLine());
}

const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "opacity", "paint-order"];

/**
 * An SVG element of the page as a file: what the page's style says goes into it.
 * @param {SVGElement} svg
 * @param {number} width
 * @param {number} height
 */
export function standingAlone(svg, width, height) {
  const whole = /** @type {SVGElement} */ (svg.cloneNode(true));
  const [from, to] = [svg, whole].map((one) => [...one.querySelectorAll("*")]);
  from.forEach((one, n) => {
    const style = getComputedStyle(one);
    for (const name of DRAWN) to[n].setAttribute(name, style.getPropertyValue(name));
  });
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim();
  const said = draw("desc", {}, madeLine());
  // a style attribute is what the page's policy forbids
  whole.prepend(said, draw("rect", { width: "100%", height: "100%", fill: paper }));
  for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height })) whole.setAttribute(name, String(value));
  return new Blob([new XMLSerializer().serializeToString(whole)], { type: "image/svg+xml" });
}

/**
 * The same as a picture for a painter; the page's policy has to let pictures in that it makes.
 * @param {SVGElement} svg
 * @param {number} width
 * @param {number} height
 * @returns {Promise<Picture>}
 */
export async function pictured(svg, width, height) {
  const image = new Image();
  image.src = URL.createObjectURL(standingAlone(svg, width, height));
  await image.decode();
  URL.revokeObjectURL(image.src);
  // a drawing is a vector until it is drawn here, large enough to be made larger
  const canvas = make("canvas", { width: Math.ceil(SHARP * width), height: Math.ceil(SHARP * height) });
  /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(image, 0, 0, canvas.width, canvas.height);
  return (painter) => {
    painter.picture(canvas, 0, 0, width, height);
    return { width, height };
  };
}

/**
 * A drawing as PNG, two pixels each way for one of the screen; null where it is too large.
 * @param {Picture} picture
 * @param {string} paper its colour
 * @returns {Promise<Blob | null>}
 */
export async function pngOf(picture, paper) {
  const size = picture(canvasPainter(/** @type {CanvasRenderingContext2D} */ (make("canvas").getContext("2d"))));
  const [width, height] = [Math.ceil(size.width), Math.ceil(size.height)];
  const ratio = Math.min(2, LONGEST / width, LONGEST / height);
  const canvas = make("canvas", { width: Math.ceil(width * ratio), height: Math.ceil(height * ratio) });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  context.fillStyle = paper;
  context.fillRect(0, 0, width, height);
  picture(canvasPainter(context));
  /** @type {Blob | null} */
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  return blob && withTexts(blob, { Software: "attnviz", Description: madeLine() });
}

/** A table as a CSV file. @param {Iterable<string[]>} lines */
export function csvOf(lines) {
  const parts = [];
  // CSV has no comments: a last column says what made the file, in the first row
  const made = ["made", madeLine()];
  let n = 0;
  for (const line of lines) parts.push(csvLine([...line, made[n++] ?? ""]));
  return new Blob(parts, { type: "text/csv;charset=utf-8" });
}

/**
 * What a menu of files saves: a drawing as PNG and SVG, numbers as CSV.
 * @param {string} name of the files, without what comes after the dot
 * @param {Picture} picture
 * @param {() => Iterable<string[]>} numbers
 * @param {{ ground?: string, headline?: () => string, card?: Picture }} [own] the name of the drawing's ground
 * among the page's colours; what a card says and shows, where that is not the page's title and the drawing
 */
export function startSaving(name, picture, numbers, { ground = "--paper", headline = pageTitle, card = picture } = {}) {
  const paper = () => getComputedStyle(document.documentElement).getPropertyValue(ground).trim();
  /** @type {Record<string, () => Blob | Promise<Blob | null>>} */
  const ways = {
    png: () => pngOf(picture, paper()),
    svg: () => new Blob([svgOf(picture, paper())], { type: "image/svg+xml" }),
    csv: () => csvOf(numbers()),
  };
  startPaper({ draw: picture, caption: () => document.title, name: () => name, hand: download });
  startShareCard({ headline, picture: () => card, name: () => name, hand: download, ground });
  for (const [suffix, way] of Object.entries(ways)) {
    document.getElementById(`save-${suffix}`)?.addEventListener("click", async () => {
      const blob = await way();
      if (blob) download(blob, `${name}.${suffix}`);
    });
  }
}

/** What stands at the head of the page. */
export function pageTitle() {
  return document.querySelector("h1")?.textContent || document.title;
}
