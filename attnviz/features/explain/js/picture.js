import { rows, valueText } from "./bars.js";
import { rootColor, scheme } from "./palette.js";
import { fitted } from "./painter.js";

/** @typedef {import("./drawing.js").Painter} Painter */
/** @typedef {import("./types.js").Data} Data */

const [WIDE, LEFT, LINE] = [980, 250, 20];

/**
 * The sentences, the heads' weights on the text, and the difference without them.
 * @param {Painter} painter
 * @param {Data} data
 */
export function drawAll(painter, data) {
  const style = getComputedStyle(document.documentElement);
  const [color, soft] = ["--text", "--soft"].map((name) => style.getPropertyValue(name).trim());
  const ends = data.signed[scheme()];
  let y = 20;
  painter.text(data.title, 12, y, { size: 15, weight: 600, color });
  for (const { said } of [data.prediction, data.split, ...data.heads.flatMap((one) => (one.found ? [one.said, one.found] : [one.said]))]) {
    for (const line of wrapped(painter, said)) painter.text(line, 12, (y += LINE), { size: 12, color });
  }
  y += 1.4 * LINE;
  const step = Math.min(34, (WIDE - LEFT - 12) / data.tokens.length);
  for (const one of data.heads) {
    painter.text(`weights of head ${one.name}`, 12, y + 9, { size: 12, color });
    one.weights.forEach((weight, n) => painter.rect(LEFT + n * step, y, step - 1, 17, rootColor(data.palette, weight)));
    y += LINE;
  }
  data.tokens.forEach((token, n) => painter.text(fitted(painter, token, 90, 10), LEFT + (n + 0.5) * step, y + 50, { size: 10, color: soft, turn: true, align: "center" }));
  y += 112;
  const values = rows(data);
  const [low, high] = [Math.min(0, ...values.map(([, value]) => value)), Math.max(0, ...values.map(([, value]) => value))];
  const unit = (WIDE - LEFT - 80) / (high - low || 1);
  painter.text(`${data.compared}, logits`, 12, y, { size: 12, weight: 600, color });
  for (const [name, value] of values) {
    y += LINE;
    painter.text(fitted(painter, name, LEFT - 20, 12), 12, y, { size: 12, color });
    painter.rect(LEFT + (Math.min(value, 0) - low) * unit, y - 7, Math.abs(value) * unit, 14, value < 0 ? ends[0] : ends[2]);
    painter.text(valueText(value), WIDE - 70, y, { size: 12, color });
  }
  painter.text(data.closing, 12, y + 1.6 * LINE, { size: 10.5, color: soft });
  return { width: WIDE, height: y + 2.4 * LINE };
}

/** @param {Painter} painter @param {string} text @returns {string[]} */
function wrapped(painter, text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`.trim();
    if (painter.measure(longer, 12) > WIDE - 24) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
