import { cellAt, data, paint } from "./data.js";
import { fitted } from "./painter.js";
import { tones } from "./palette.js";

const [WIDE, HIGH, LEFT, TOP] = [74, 22, 54, 46];

/**
 * The whole table, or its last columns.
 * @param {import("./drawing.js").Painter} painter
 * @param {number} [last] columns
 */
export function drawWhole(painter, last = 0) {
  const [text, soft] = tones("--text", "--soft");
  const from = last ? Math.max(0, data.tokens.length - last) : 0;
  const at = (/** @type {number} */ column) => LEFT + (column - from) * WIDE;
  const shown = [...data.tokens.keys()].slice(from);
  painter.text(data.title, 10, 16, { size: 14, color: text, weight: 650 });
  for (const column of shown) painter.text(fitted(painter, data.tokens[column], WIDE - 6, 11), at(column + 0.5), TOP - 8, { size: 11, color: text, align: "center" });
  data.layers.forEach((name, layer) => {
    const y = TOP + layer * HIGH;
    painter.text(name, LEFT - 8, y + HIGH / 2, { size: 11, color: soft, align: "right" });
    for (const column of shown) {
      const [word, share] = cellAt({ layer, column }).top[0];
      const { ground, ink } = paint(share);
      painter.rect(at(column), y, WIDE - 1, HIGH - 1, ground);
      painter.text(fitted(painter, data.names[word], WIDE - 6, 11), at(column + 0.5), y + HIGH / 2, { size: 11, color: ink, align: "center" });
    }
  });
  const end = TOP + data.layers.length * HIGH;
  if (data.next.length) painter.text("next", LEFT - 8, end + HIGH / 2, { size: 11, color: soft, align: "right" });
  for (const column of data.next.length ? shown : []) painter.text(fitted(painter, data.next[column], WIDE - 6, 11), at(column + 0.5), end + HIGH / 2, { size: 11, color: soft, align: "center" });
  const title = last ? 0 : painter.measure(data.title, 14, 650) + 20;
  return { width: Math.max(title, at(data.tokens.length) + 10), height: end + HIGH + 10 };
}
