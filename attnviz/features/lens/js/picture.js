import { cellAt, data, paint } from "./data.js";

const [WIDE, HIGH, LEFT, TOP] = [74, 22, 54, 46];

/** Cut a text to a width. @param {import("./drawing.js").Painter} painter @param {string} text */
function cut(painter, text) {
  if (painter.measure(text, 11) <= WIDE - 6) return text;
  let size = text.length;
  while (size && painter.measure(`${text.slice(0, size)}\u2026`, 11) > WIDE - 6) size -= 1;
  return `${text.slice(0, size)}\u2026`;
}

/** The whole table. @param {import("./drawing.js").Painter} painter @param {{ text: string, soft: string }} tones */
export function drawWhole(painter, { text, soft }) {
  painter.text(data.title, 10, 16, { size: 14, color: text, weight: 650 });
  data.tokens.forEach((token, column) => painter.text(cut(painter, token), LEFT + (column + 0.5) * WIDE, TOP - 8, { size: 11, color: text, align: "center" }));
  data.layers.forEach((name, layer) => {
    const y = TOP + layer * HIGH;
    painter.text(name, LEFT - 8, y + HIGH / 2, { size: 11, color: soft, align: "right" });
    data.tokens.forEach((_, column) => {
      const [word, share] = cellAt({ layer, column }).top[0];
      const { ground, ink } = paint(share);
      painter.rect(LEFT + column * WIDE, y, WIDE - 1, HIGH - 1, ground);
      painter.text(cut(painter, data.names[word]), LEFT + (column + 0.5) * WIDE, y + HIGH / 2, { size: 11, color: ink, align: "center" });
    });
  });
  const end = TOP + data.layers.length * HIGH;
  if (data.next.length) painter.text("next", LEFT - 8, end + HIGH / 2, { size: 11, color: soft, align: "right" });
  data.next.forEach((token, column) => painter.text(cut(painter, token), LEFT + (column + 0.5) * WIDE, end + HIGH / 2, { size: 11, color: soft, align: "center" }));
  const title = painter.measure(data.title, 14, 650) + 20;
  return { width: Math.max(title, LEFT + data.tokens.length * WIDE + 10), height: end + HIGH + 10 };
}
