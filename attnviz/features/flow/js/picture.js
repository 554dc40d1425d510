import { clamp } from "./dom.js";
import { count, depth, ROW } from "./data.js";

/** @typedef {import("./types.js").Line} Line */
/** @typedef {import("./types.js").Node} Node */

/** Lines at a time. */
const MOST = 12000;

/**
 * Lines as thick and as strong as their shares; without a chosen node what stays is grey.
 * @param {HTMLCanvasElement} canvas
 * @param {Line[]} lines
 * @param {Node | null} chosen
 */
export function paint(canvas, lines, chosen) {
  const width = canvas.clientWidth;
  const height = ROW * count;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const [flow, stays, line, mark] = ["flow", "stays", "line", "chosen"].map(color);
  pen.scale(ratio, ratio);
  const step = width / depth;
  if (chosen) {
    pen.fillStyle = mark;
    for (const node of chosen.nodes) pen.fillRect(0, node * ROW, width, ROW);
  }
  pen.strokeStyle = line;
  for (let n = 0; n <= depth; n += 1) {
    pen.beginPath();
    pen.moveTo(n * step, 0);
    pen.lineTo(n * step, height);
    pen.stroke();
  }
  const drawn = lines.sort((a, b) => a[0] - b[0]).slice(-MOST);
  /** @param {Line} one */
  const quiet = (one) => !chosen && one[2] === one[3];
  for (const one of [...drawn.filter(quiet), ...drawn.filter((other) => !quiet(other))]) {
    const [share, layer, from, to] = one;
    const [x, y, end] = [layer * step, (from + 0.5) * ROW, (to + 0.5) * ROW];
    pen.strokeStyle = quiet(one) ? stays : flow;
    pen.globalAlpha = 0.12 + 0.78 * Math.sqrt(Math.min(share, 1));
    pen.lineWidth = Math.max(share * Math.min(ROW - 3, 18), 0.5);
    pen.beginPath();
    pen.moveTo(x, y);
    pen.bezierCurveTo(x + step / 2, y, x + step / 2, end, x + step, end);
    pen.stroke();
  }
  pen.globalAlpha = 1;
  if (chosen) {
    pen.fillStyle = flow;
    for (const node of chosen.nodes) {
      pen.beginPath();
      pen.arc(clamp(chosen.layer * step, 4, width - 4), (node + 0.5) * ROW, 4, 0, 7);
      pen.fill();
    }
  }
}
