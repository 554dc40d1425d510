import { cellAt, data, paint } from "./data.js";

const [WIDE, HIGH, LEFT, TOP] = [74, 22, 54, 46];

/** Cut a text to a width. @param {import("./drawing.js").Painter} painter @param {string} text */
function cut(painter, text) {
  if (painter.measure(text, 11) <= WIDE - 6) return text;
  let size = text.length;
  while (size && painter.measure(`${text.slice(0, size)}\u2026`, 11) > WIDE - 6) size -= 1;
  return `${text.slice(0, size)}\u2026`;
}

/**
 * The whole table, or its last columns.
 * @param {import("./drawing.js").Painter} painter
 * @param {{ text: string, soft: string }} tones
 * @param {number} [last] columns
 */
export function drawWhole(painter, { text, soft }, last = 0) {
  const from = last ? Math.max(0, data.tokens.length - last) : 0;
  const at = (/** @type {number} */ column) => LEFT + (column - from) * WIDE;
  const shown = [...data.tokens.keys()].slice(from);
  painter.text(data.title, 10, 16, { size: 14, color: text, weight: 650 });
  for (const column of shown) painter.text(cut(painter, data.tokens[column]), at(column + 0.5), TOP - 8, { size: 11, color: text, align: "center" });
  data.layers.forEach((name, layer) => {
    const y = TOP + layer * HIGH;
    painter.text(name, LEFT - 8, y + HIGH / 2, { size: 11, color: soft, align: "right" });
    for (const column of shown) {
      const [word, share] = cellAt({ layer, column }).top[0];
      const { ground, ink } = paint(share);
      painter.rect(at(column), y, WIDE - 1, HIGH - 1, ground);
      painter.text(cut(painter, data.names[word]), at(column + 0.5), y + HIGH / 2, { size: 11, color: ink, align: "center" });
    }
  });
  const end = TOP + data.layers.length * HIGH;
  if (data.next.length) painter.text("next", LEFT - 8, end + HIGH / 2, { size: 11, color: soft, align: "right" });
  for (const column of data.next.length ? shown : []) painter.text(cut(painter, data.next[column]), at(column + 0.5), end + HIGH / 2, { size: 11, color: soft, align: "center" });
  const title = last ? 0 : painter.measure(data.title, 14, 650) + 20;
  return { width: Math.max(title, at(data.tokens.length) + 10), height: end + HIGH + 10 };
}
