import { byId, make } from "./dom.js";
import { inflate } from "./inflate.js";
import { csvLine } from "./csv.js";
import { madeLine } from "./made.js";
import { startPaper } from "./paper.js";
import { startShareCard } from "./sharecard.js";
import { withTexts } from "./pngchunks.js";
import { canvasPainter, svgPainter } from "./painter.js";

/** @typedef {import("./drawing.js").Painter} Painter */
/** Draws all of something and gives the size that it needs. @typedef {(painter: Painter) => { width: number, height: number }} Picture */

/** No side of a PNG is longer than what browsers can draw. */
const LONGEST = 8000;

/** Hand a file to the browser. @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A drawing as SVG. @param {Picture} picture @param {string} paper its colour */
export function svgOf(picture, paper) {
  const painter = svgPainter();
  const { width, height } = picture(painter);
  return painter.finish(width, height, paper, document.title, madeLine());
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

/** The result that a page holds, as `attnviz.read` reads it; of a page that holds none its numbers. @param {Iterable<string[]>} numbers */
export async function jsonOf(numbers) {
  const held = document.getElementById("result")?.textContent;
  const text = held ? new TextDecoder().decode(await inflate(held)) : "";
  if (text && !text.startsWith('{"schema": "attnviz.page/')) return new Blob([text], { type: "application/json" });
  const [titles, ...lines] = numbers;
  const rows = lines.map((line) => Object.fromEntries(titles.map((title, n) => [title, line[n] !== "" && Number.isFinite(Number(line[n])) ? Number(line[n]) : line[n]])));
  return new Blob([JSON.stringify({ made: madeLine(), rows })], { type: "application/json" });
}

/**
 * The files behind the buttons of the menu, each made when its button is pressed.
 * @param {() => string} name without what comes after the dot
 * @param {Record<string, () => Blob | null | Promise<Blob | null>>} ways by the suffix
 */
export function startFiles(name, ways) {
  for (const [suffix, way] of Object.entries(ways)) {
    byId(`save-${suffix}`).addEventListener("click", async () => {
      const blob = await way();
      if (blob) download(blob, `${name()}.${suffix}`);
    });
  }
}

/**
 * What the menu of every page saves: a drawing as PNG, SVG, for a paper and on a card, numbers as CSV, all as JSON.
 * @param {string} name of the files, without what comes after the dot
 * @param {Picture} picture
 * @param {() => Iterable<string[]>} numbers
 * @param {{ ground?: string, headline?: () => string, card?: Picture }} [own] the name of the drawing's ground
 * among the page's colours; what a card says and shows, where that is not the page's title and the drawing
 */
export function startSaving(name, picture, numbers, { ground = "--paper", headline = pageTitle, card = picture } = {}) {
  const paper = () => getComputedStyle(document.documentElement).getPropertyValue(ground).trim();
  startFiles(() => name, {
    png: () => pngOf(picture, paper()),
    svg: () => new Blob([svgOf(picture, paper())], { type: "image/svg+xml" }),
    csv: () => csvOf(numbers()),
    json: () => jsonOf(numbers()),
  });
  startPaper({ draw: picture, caption: () => document.title, name: () => name, hand: download });
  startShareCard({ headline, picture: () => card, name: () => name, hand: download, ground });
}

/** What stands at the head of the page. */
export function pageTitle() {
  return document.querySelector("h1")?.textContent || document.title;
}
