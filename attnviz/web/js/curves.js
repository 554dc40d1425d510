import { draw } from "./svg.js";

/** Between an axis and its numbers, and what stands above, on the right and below a chart, in its units. */
const [GAP, ABOVE, RIGHT, BELOW] = [6, 12, 16, 36];
/** How wide a digit of a number at an axis is. */
const DIGIT = 8;

/**
 * A line of a chart: its points, the class of its style (none for a band alone), and a band around it.
 * @typedef {{ kind?: string, points: [number, number][], band?: [number, number][] }} Curve
 */

/**
 * A chart of lines over two axes, as knockout, patch and profile draw it.
 * @param {object} chart
 * @param {number} chart.width
 * @param {number} chart.height
 * @param {string} chart.label for who cannot see it
 * @param {string} [chart.title] below
 * @param {[number, string][]} chart.across numbers below, in order
 * @param {[number, string][]} chart.up numbers at the left, each with a line
 * @param {Curve[]} chart.curves
 * @param {{ kind: string, at: [number, number], r: number, said?: string }[]} [chart.dots]
 */
export function chart({ width, height, label, title = "", across, up, curves, dots = [] }) {
  const left = 2 * GAP + DIGIT * Math.max(...up.map(([, text]) => text.length));
  const all = [...curves.flatMap(({ points, band = [] }) => [...points, ...band.flatMap(([a, b], n) => /** @type {[number, number][]} */ ([[points[n][0], a], [points[n][0], b]]))]), ...dots.map(({ at }) => at)];
  const [xs, ys] = [[...across, ...all].map(([x]) => x), [...up.map(([y]) => y), ...all.map(([, y]) => y)]];
  const [first, last, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const bottom = height - (title ? BELOW : BELOW / 2);
  const x = (/** @type {number} */ value) => left + 8 + ((value - first) / (last - first || 1)) * (width - left - RIGHT - 8);
  const y = (/** @type {number} */ value) => bottom - ((value - low) / (high - low || 1)) * (bottom - ABOVE);
  const path = (/** @type {[number, number][]} */ points) => points.map((point) => `${x(point[0])},${y(point[1])}`).join(" ");
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const text = (/** @type {number} */ at, /** @type {number} */ line, /** @type {string} */ said, anchor = "middle") => svg.append(draw("text", { class: "tick", x: at, y: line, "text-anchor": anchor }, said));
  for (const [value, said] of up) {
    svg.append(draw("line", { class: "axis", x1: left, x2: width - RIGHT / 2, y1: y(value), y2: y(value) }));
    text(left - GAP, y(value) + 4, said, "end");
  }
  for (const [value, said] of across) text(x(value), bottom + 16, said);
  if (title) text((left + width) / 2, height - 4, title);
  for (const { points, band } of curves) {
    const ends = [0, 1].map((end) => band?.map((values, n) => /** @type {[number, number]} */ ([points[n][0], values[end]])) || []);
    if (band) svg.append(draw("polygon", { class: "band", points: `${path(ends[1])} ${path(ends[0].reverse())}` }));
  }
  for (const { kind, points } of curves) if (kind) svg.append(draw("polyline", { class: kind, points: path(points) }));
  for (const { kind, at, r, said } of dots) {
    svg.append(draw("circle", { class: kind, cx: x(at[0]), cy: y(at[1]), r }, ...(said ? [draw("title", {}, said)] : [])));
  }
  return /** @type {SVGSVGElement} */ (svg);
}
