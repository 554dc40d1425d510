import { data, largest, MAP, mapOf, tintOf } from "./data.js";
import { signedText, wholePercent } from "./numbers.js";
import { broken, fitted } from "./painter.js";
import { paintMap, placesOf } from "./mapfigure.js";
import { tones } from "./palette.js";

/** @typedef {import("./drawing.js").Painter} Painter */

const [LEFT, LINE, CELL, BAR, BETWEEN, WIDE, ACROSS] = [14, 18, 46, 150, 26, 1060, 3];

/**
 * Text over as many lines as it needs; the height that they take.
 * @param {Painter} painter @param {string} text @param {number} x @param {number} y @param {number} width @param {string} color
 */
function wrapped(painter, text, x, y, width, color) {
  const lines = broken(painter, text, width, 12);
  lines.forEach((line, n) => painter.text(line, x, y + n * LINE, { size: 12, color }));
  return lines.length * LINE;
}

/**
 * A chart of bars; its size.
 * @param {Painter} painter
 * @param {string} title
 * @param {[string, number, string][]} lines name, value, how it is written
 * @param {number} x
 * @param {number} y
 */
function bars(painter, title, lines, x, y) {
  const [text, soft] = tones("--text", "--soft");
  const [most, low] = [largest(lines.map(([, value]) => value)) || 1, lines.some(([, value]) => value < 0)];
  const room = Math.min(120, Math.max(...lines.map(([name]) => painter.measure(name, 11)))) + 8;
  const zero = x + room + (low ? BAR / 2 : 0);
  painter.text(title, x, y, { size: 12, color: soft });
  lines.forEach(([name, value, said], n) => {
    const [at, size] = [y + (n + 1) * LINE, (Math.abs(value) / most) * (low ? BAR / 2 : BAR)];
    painter.text(fitted(painter, name, 120, 11), x + room - 6, at, { size: 11, color: text, align: "right" });
    painter.rect(value < 0 ? zero - size : zero, at - 5, Math.max(size, 0.5), 10, tones(value < 0 ? "--mark" : "--strong")[0]);
    painter.text(said, x + room + BAR + 6, at, { size: 11, color: text });
  });
  return { width: room + BAR + 56, height: (lines.length + 1) * LINE };
}

/** The grid of votes. @param {Painter} painter @param {number} x @param {number} y */
function votes(painter, x, y) {
  const [text, soft] = tones("--text", "--soft");
  const most = largest(data.votes.flatMap(({ values }) => values));
  const chosen = new Set(data.heads.map(({ name }) => name));
  painter.text("votes of heads for the lead", x, y, { size: 12, color: soft });
  data.votes.forEach(({ layer, values }, row) => {
    const top = y + LINE / 2 + row * 22;
    painter.text(layer, x + 12, top + 11, { size: 11, color: soft, align: "right" });
    values.forEach((value, column) => {
      const { ground, ink } = tintOf(most ? value / most : 0);
      const left = x + 18 + column * CELL;
      if (chosen.has(`${layer}.${column}`)) painter.rect(left - 2, top - 2, CELL + 3, 25, text);
      painter.rect(left, top, CELL - 1, 21, ground);
      painter.text(signedText(value), left + CELL / 2, top + 11, { size: 11, color: ink, align: "center", weight: chosen.has(`${layer}.${column}`) ? 700 : 400 });
    });
  });
  const across = Math.max(...data.votes.map(({ values }) => values.length));
  return { width: 18 + across * CELL, height: LINE + data.votes.length * 22 };
}

/** A head that is told about. @param {Painter} painter @param {import("./types.js").Head} head @param {number} x @param {number} y */
function told(painter, head, x, y) {
  painter.text(`head ${head.name}${head.vote === null ? "" : `: vote ${head.vote}`}`, x, y, { size: 13, weight: 650, color: tones("--text")[0] });
  painter.text(fitted(painter, `looks most at ${head.looks}`, 320, 11), x, y + LINE, { size: 11, color: tones("--soft")[0] });
  const map = head.map.length ? mapOf(head) : null;
  const size = map ? placesOf(painter, map) : { width: MAP, height: 0 };
  if (map) paintMap(painter, map, x, y + 2 * LINE);
  let height = 2 * LINE + size.height + LINE;
  if (head.keys.length) height += bars(painter, "its key comes from", head.keys.map(([name, share]) => [name, share, head.shares ? wholePercent(share) : signedText(share)]), x, y + height).height;
  return { width: Math.max(size.width, 330), height };
}

/** The votes, and the words that are predicted, for a card. @param {Painter} painter */
export function drawVotes(painter) {
  const size = data.votes.length ? votes(painter, 0, LINE / 2) : { width: 0, height: 0 };
  const x = size.width && size.width + BETWEEN;
  const beside = bars(painter, "what it predicts", data.predictions.map(([word, share, said]) => [word, share, said]), x, LINE / 2);
  return { width: x + beside.width, height: Math.max(size.height, beside.height) };
}

/** All that the page says of this prediction. @param {Painter} painter */
export function drawWhole(painter) {
  const [text, soft] = tones("--text", "--soft");
  painter.text(data.title, LEFT, 18, { size: 16, weight: 650, color: text });
  let y = 42;
  for (const sentence of [data.said, ...data.summary]) y += wrapped(painter, sentence, LEFT, y, WIDE, soft);
  y += LINE / 2;
  let x = LEFT;
  /** @type {{ width: number, height: number }[]} */
  const above = [];
  const put = (/** @type {{ width: number, height: number }} */ size) => { above.push(size); x += size.width + BETWEEN; };
  if (data.votes.length) {
    put(bars(painter, "what adds up to the lead", data.account.map(([name, value]) => [name, value, signedText(value)]), x, y));
    put(votes(painter, x, y));
  }
  put(bars(painter, "what it predicts", data.predictions.map(([word, share, said]) => [word, share, said]), x, y));
  if (data.through.length) put(bars(painter, "through tokens", data.through.map(([name, value]) => [name, value, signedText(value)]), x, y));
  let width = x;
  y += Math.max(...above.map(({ height }) => height)) + LINE;
  for (let first = 0; first < data.heads.length; first += ACROSS) {
    x = LEFT;
    const heights = data.heads.slice(first, first + ACROSS).map((head) => {
      const size = told(painter, head, x, y);
      x += size.width + BETWEEN;
      return size.height;
    });
    width = Math.max(width, x, WIDE / 2);
    y += Math.max(...heights) + LINE;
  }
  for (const [name, ...changes] of data.effects) {
    y += wrapped(painter, `without ${name} the lead of ${data.answer} changes by ${changes.map((change, n) => `${change} (${data.methods[n]})`).join(", ")}`, LEFT, y, WIDE, text);
  }
  y += wrapped(painter, `${data.measured} ${data.closing}`, LEFT, y, WIDE, soft);
  return { width: Math.max(width, LEFT + WIDE), height: y + LINE };
}
