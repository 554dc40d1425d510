import { byId, make } from "./dom.js";
import { madeLine } from "./made.js";
import { broken, canvasPainter, fitted } from "./painter.js";
import { tones } from "./palette.js";
import { withTexts } from "./pngchunks.js";

/** @typedef {import("./drawing.js").Painter} Painter */
/** @typedef {(painter: Painter) => { width: number, height: number }} Picture */
/**
 * What a card shows.
 * @typedef {object} Card
 * @property {() => string} headline
 * @property {() => Picture} picture
 * @property {() => string} name of its file, without what comes after the dot
 * @property {(blob: Blob, name: string) => void} hand to the browser
 * @property {string} [ground] the name of its ground among the page's colours
 */

/** As previews of links are; nothing stands in the margin, which some of them cut off. */
const [WIDTH, HEIGHT, MARGIN] = [1200, 630, 56];
const [INSIDE, GAP, FOOT] = [WIDTH - 2 * MARGIN, 32, 20];
/** Letters of the headline, the largest in which it has room, and its height above a wide picture. */
const [SIZES, LINE, WEIGHT, ABOVE] = [[46, 40, 34, 30, 26], 1.2, 700, 132];
/** A picture that is no wider than so many times its height stands beside the headline. */
const SQUARE = 1.6;
/** Small pictures become so much larger at most. */
const LARGEST = 3;

/**
 * A headline in the largest letters in which it has room; where it has none, with an ellipsis.
 * @param {Painter} painter @param {string} text @param {number} width @param {number} height
 */
function set(painter, text, width, height) {
  for (const size of SIZES) {
    const lines = broken(painter, text, width, size, WEIGHT);
    if (lines.length * size * LINE <= height) return { size, lines };
  }
  const size = SIZES[SIZES.length - 1];
  const most = Math.floor(height / (size * LINE));
  const lines = broken(painter, text, width, size, WEIGHT);
  return { size, lines: [...lines.slice(0, most - 1), fitted(painter, lines.slice(most - 1).join(" "), width, size, WEIGHT)] };
}

/**
 * The card: a headline, the picture, and what made it, in the page's colours.
 * @param {string} headline @param {Picture} picture @param {string} ground
 */
function drawn(headline, picture, ground) {
  const canvas = make("canvas", { width: WIDTH, height: HEIGHT });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const painter = canvasPainter(context);
  const [paper, text, soft] = tones(ground, "--text", "--soft");
  const own = picture(canvasPainter(/** @type {CanvasRenderingContext2D} */ (make("canvas").getContext("2d"))));
  const high = HEIGHT - 2 * MARGIN - FOOT - GAP;
  const beside = own.width <= SQUARE * own.height;
  const scaled = (/** @type {number} */ width, /** @type {number} */ height) => Math.min(LARGEST, width / own.width, height / own.height);
  let scale = beside ? scaled(INSIDE / 2, high) : 1;
  const column = beside ? INSIDE - scale * own.width - GAP : INSIDE;
  const { size, lines } = set(painter, headline, column, beside ? high : ABOVE);
  const said = lines.length * size * LINE;
  const top = MARGIN + (beside ? (high - said) / 2 : 0);
  const room = beside ? high : high - said - GAP;
  if (!beside) scale = scaled(INSIDE, room);
  const [width, height] = [scale * own.width, scale * own.height];
  const left = beside ? WIDTH - MARGIN - width : MARGIN + (INSIDE - width) / 2;
  painter.rect(0, 0, WIDTH, HEIGHT, paper);
  lines.forEach((line, n) => painter.text(line, MARGIN, top + (n + 0.5) * size * LINE, { size, color: text, weight: WEIGHT }));
  painter.text(fitted(painter, madeLine(), INSIDE, FOOT), MARGIN, HEIGHT - MARGIN - FOOT / 2, { size: FOOT, color: soft });
  context.beginPath();
  context.rect(left, MARGIN + (beside ? 0 : said + GAP) + (room - height) / 2, width, height);
  context.clip();
  context.translate(left, MARGIN + (beside ? 0 : said + GAP) + (room - height) / 2);
  context.scale(scale, scale);
  picture(painter);
  return canvas;
}

/** A button of the menu that saves: a picture for a link, a message or a slide. @param {Card} card */
export function startShareCard(card) {
  const button = make("button", { type: "button", id: "save-card", title: `a picture of ${WIDTH} × ${HEIGHT} pixels, to show elsewhere` }, "share card");
  /** @type {HTMLElement} */ (document.querySelector("#save .menu-inside")).append(button);
  button.addEventListener("click", async () => {
    const headline = card.headline().trim();
    const canvas = drawn(headline, card.picture(), card.ground || "--paper");
    /** @type {Blob | null} */
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    if (blob) card.hand(await withTexts(blob, { Software: "attnviz", Title: headline, Description: madeLine() }), `${card.name()}-card.png`);
    /** @type {HTMLDetailsElement} */ (byId("save")).open = false;
  });
}
