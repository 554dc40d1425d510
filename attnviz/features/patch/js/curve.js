import { draw } from "./svg.js";

const WIDE = 360;
const HIGH = 190;
const LEFT = 34;
const BELOW = 34;

/**
 * Faithfulness by size, random circuits, and the circuit itself.
 * @param {import("./types.js").Data} data
 */
export function curve(data) {
  const sizes = data.curve.map(([size]) => size);
  const last = Math.max(...sizes, 1);
  const values = data.curve.flatMap(([, share, low, high]) => [share, low ?? share, high ?? share]);
  const low = Math.min(0, ...values, ...data.random);
  const high = Math.max(1, ...values);
  /** @param {number} size */
  const x = (size) => LEFT + (size / last) * (WIDE - LEFT - 10);
  /** @param {number} share */
  const y = (share) => 8 + (1 - (share - low) / (high - low)) * (HIGH - BELOW - 8);
  const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": "faithfulness by size" });
  for (const share of [0, 0.5, 1]) {
    svg.append(draw("line", { class: "axis", x1: LEFT, x2: WIDE - 10, y1: y(share), y2: y(share) }));
    svg.append(draw("text", { class: "tick", x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, String(share)));
  }
  for (const size of [0, Math.round(last / 2), last]) {
    svg.append(draw("text", { class: "tick", x: x(size), y: HIGH - BELOW + 14, "text-anchor": "middle" }, String(size)));
  }
  svg.append(draw("text", { class: "tick", x: (LEFT + WIDE) / 2, y: HIGH - 4, "text-anchor": "middle" }, "heads that are not corrupted"));
  const upper = data.curve.map(([size, share, , top]) => `${x(size)},${y(top ?? share)}`);
  const lower = data.curve.map(([size, share, bottom]) => `${x(size)},${y(bottom ?? share)}`).reverse();
  svg.append(draw("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
  svg.append(draw("polyline", { class: "line", points: data.curve.map(([size, share]) => `${x(size)},${y(share)}`).join(" ") }));
  for (const share of data.random) svg.append(draw("circle", { class: "random", cx: x(data.size), cy: y(share), r: 2.4 }));
  svg.append(draw("circle", { class: "mine", cx: x(data.size), cy: y(data.faithful), r: 5 }));
  return svg;
}
