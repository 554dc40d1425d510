import { clamp } from "./dom.js";
import { count, data, depth, ROW } from "./data.js";
import { prepared } from "./painter.js";

/** @typedef {import("./types.js").Line} Line */
/** @typedef {import("./types.js").Node} Node */
/** @typedef {import("./types.js").Shown} Shown */
/** @typedef {import("./drawing.js").Painter} Painter */

/** Lines at a time. */
const MOST = 12000;
/** A saved picture: how wide its lines are, and each side beside them; what stands above. */
const [WIDE, SIDE, ABOVE] = [640, 250, 76];
const BAR = 80;

/** Colours as the page has them. */
export function tones() {
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  return { flow: color("flow"), weights: color("weights"), stays: color("stays"), line: color("line"), held: color("held"), text: color("text"), soft: color("soft"), paper: color("paper") };
}

/**
 * Lines as thick and as strong as their shares; without a chosen node what stays is grey.
 * @param {HTMLCanvasElement} canvas
 * @param {Line[]} lines
 * @param {Node | null} chosen
 */
export function paint(canvas, lines, chosen) {
  const width = canvas.clientWidth;
  const painter = prepared(canvas, width, ROW * count);
  canvas.style.width = "";
  drawLines(painter, lines, chosen, 0, 0, width);
}

/**
 * @param {Painter} painter
 * @param {Line[]} lines
 * @param {Node | null} chosen
 * @param {number} left
 * @param {number} top
 * @param {number} width
 */
function drawLines(painter, lines, chosen, left, top, width) {
  const colors = tones();
  const step = width / depth;
  if (chosen) for (const node of chosen.nodes) painter.rect(left, top + node * ROW, width, ROW, colors.held);
  for (let n = 0; n <= depth; n += 1) painter.line(left + n * step, top, left + n * step, top + count * ROW, colors.line, 1);
  const drawn = lines.sort((a, b) => a[0] - b[0]).slice(-MOST);
  /** @param {Line} one */
  const quiet = (one) => !chosen && one[2] === one[3];
  for (const one of [...drawn.filter(quiet), ...drawn.filter((other) => !quiet(other))]) {
    const [share, layer, from, to] = one;
    const x = left + layer * step;
    painter.curve(x, top + (from + 0.5) * ROW, x + step, top + (to + 0.5) * ROW, quiet(one) ? colors.stays : colors.flow,
      Math.max(share * Math.min(ROW - 3, 24), 0.5), 0.12 + 0.78 * Math.sqrt(Math.min(share, 1)));
  }
  if (chosen) for (const node of chosen.nodes) painter.dot(left + clamp(chosen.layer * step, 4, width - 4), top + (node + 0.5) * ROW, 4, colors.flow);
}

/**
 * All of what the page shows: title, sentence, legend, both sides with their shares, lines.
 * @param {Painter} painter
 * @param {Line[]} lines
 * @param {Node | null} chosen
 * @param {Shown} shown
 */
export function drawWhole(painter, lines, chosen, { said, before, after }) {
  const colors = tones();
  const width = 2 * SIDE + WIDE;
  painter.text(data.title, 12, 16, { size: 14, weight: 600, color: colors.text });
  painter.text(said, 12, 36, { size: 12, color: colors.text });
  let x = 12;
  /** @type {[string, string, boolean][]} */
  const key = [[colors.flow, data.called, true], [colors.weights, "mean of the weights", chosen !== null], [colors.stays, "stays on the residual path", chosen === null]];
  for (const [color, text, used] of key) {
    if (!used) continue;
    painter.rect(x, 50, 12, 10, color);
    painter.text(text, x + 17, 55, { size: 11, color: colors.soft });
    x += 35 + painter.measure(text, 11);
  }
  data.columns.forEach((name, n) => painter.text(name, SIDE + ((n + 0.5) * WIDE) / depth, ABOVE - 8, { size: 11, align: "center", color: colors.soft }));
  for (const [bars, edge, way] of /** @type {const} */ ([[before, SIDE, -1], [after, SIDE + WIDE, 1]])) {
    const align = way < 0 ? "right" : "left";
    data.tokens.forEach((token, node) => {
      const y = ABOVE + (node + 0.5) * ROW;
      if (chosen?.nodes.includes(node)) painter.rect(way < 0 ? 0 : edge, y - ROW / 2, SIDE, ROW, colors.held);
      painter.text(token, edge + 8 * way, y, { size: Math.min(12, ROW * 0.7), align, color: colors.text });
      const { share, flow, weights } = bars[node];
      if (share) painter.text(share, edge + 128 * way, y, { size: 10.5, align, color: colors.soft });
      for (const [part, color, dy] of /** @type {const} */ ([[flow, colors.flow, -0.35], [weights, colors.weights, 0]])) {
        const long = BAR * part;
        painter.rect(way < 0 ? edge - 164 - long : edge + 164, y + dy * ROW, long, ROW * 0.33, color);
      }
    });
  }
  drawLines(painter, lines, chosen, SIDE, ABOVE, WIDE);
  painter.text(data.closing, 12, ABOVE + count * ROW + 16, { size: 10.5, color: colors.soft });
  return { width, height: ABOVE + count * ROW + 30 };
}
