/** @typedef {import("./types.js").Box} Box */

/** How large the letters in a box are. @param {Box} box */
export function lettersOf([, , width, height, fill, words]) {
  return fill ? Math.min(height * 0.6, width / (0.62 * Math.max(5, words.length)), 16) : 13;
}

/**
 * One step as a picture.
 * @param {import("./drawing.js").Painter} painter
 * @param {import("./types.js").Animation} animation
 * @param {number} at
 */
export function paintFrame(painter, animation, at) {
  const { boxes, caption, shapes } = animation.frames[at];
  const text = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
  const stage = /** @type {SVGSVGElement} */ (document.querySelector("#stage")).viewBox.baseVal;
  for (const [, number] of boxes) {
    const box = animation.boxes[number];
    const [x, y, width, height, fill, words, colour, bold, ring, align] = box;
    if (ring) painter.rect(x - 1.5, y - 1.5, width + 3, height + 3, text);
    if (fill) painter.rect(x, y, width, height, fill);
    const side = /** @type {const} */ ({ start: "left", middle: "center", end: "right" })[align];
    painter.text(words, align === "middle" ? x + width / 2 : x, y + height / 2, { size: lettersOf(box), color: fill ? colour : text, weight: bold ? 700 : 400, align: side });
  }
  painter.text(caption, 16, stage.height + 18, { size: 15, color: text });
  painter.text(shapes, 16, stage.height + 40, { size: 12, color: text });
  return { width: stage.width, height: stage.height + 58 };
}
