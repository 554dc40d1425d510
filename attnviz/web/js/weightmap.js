import { make } from "./dom.js";

/**
 * A head's weights: queries downwards, keys across.
 * @param {number[][]} pattern
 * @param {string[]} tokens
 * @param {string} [said] in words, for those who cannot see it
 */
export function map(pattern, tokens, said = "attention weights on the first clean prompt") {
  const cell = Math.max(5, Math.min(18, Math.floor(280 / tokens.length)));
  const style = getComputedStyle(document.documentElement);
  const [text, strong] = ["--soft", "--strong"].map((name) => style.getPropertyValue(name).trim());
  const canvas = make("canvas", { role: "img", "aria-label": said });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const font = `${Math.min(11, cell)}px system-ui, sans-serif`;
  context.font = font;
  const label = Math.ceil(Math.max(...tokens.map((token) => context.measureText(token).width))) + 6;
  const size = tokens.length * cell;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = (label + size) * ratio;
  canvas.height = (label + size) * ratio;
  canvas.style.width = `${label + size}px`;
  canvas.style.height = `${label + size}px`;
  context.scale(ratio, ratio);
  context.font = font;
  context.fillStyle = text;
  context.textBaseline = "middle";
  tokens.forEach((token, place) => {
    context.textAlign = "right";
    context.fillText(token, label - 4, label + (place + 0.5) * cell);
    context.save();
    context.translate(label + (place + 0.5) * cell, label - 4);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(token, 0, 0);
    context.restore();
  });
  pattern.forEach((row, query) => row.forEach((weight, key) => {
    context.globalAlpha = weight > 0 ? 0.06 + 0.94 * Math.sqrt(weight) : 0.03;
    context.fillStyle = weight > 0 ? strong : text;
    context.fillRect(label + key * cell, label + query * cell, cell - 1, cell - 1);
  }));
  return canvas;
}
