import { figure } from "./numbers.js";
import { draw } from "./svg.js";

const WIDE = 480;
const HIGH = 220;
const LEFT = 48;
const BELOW = 36;

/**
 * The change by the layer around which all heads are cut, and that of the control.
 * @param {import("./types.js").Effect[]} windows
 * @param {string} unit
 */
export function curve(windows, unit) {
  const layers = windows.map((one) => one.layer || 0);
  const values = windows.flatMap((one) => [one.value, one.control || 0, ...(one.ends || [])]);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values, low + 1e-9);
  const last = Math.max(...layers, 1);
  /** @param {number} layer */
  const x = (layer) => LEFT + 8 + (layer / last) * (WIDE - LEFT - 24);
  /** @param {number} value */
  const y = (value) => 10 + (1 - (value - low) / (high - low)) * (HIGH - BELOW - 16);
  const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": "change by layer" });
  for (const value of new Set([low, 0, high])) {
    svg.append(draw("line", { class: "axis", x1: LEFT, x2: WIDE - 8, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, figure(value)));
  }
  const step = Math.ceil(windows.length / 12);
  for (const layer of layers.filter((_, n) => n % step === 0)) {
    svg.append(draw("text", { class: "tick", x: x(layer), y: HIGH - BELOW + 14, "text-anchor": "middle" }, String(layer)));
  }
  svg.append(draw("text", { class: "tick", x: (LEFT + WIDE) / 2, y: HIGH - 4, "text-anchor": "middle" }, `layer${unit ? `; ${unit}` : ""}`));
  if (windows.every((one) => one.ends)) {
    const upper = windows.map((one) => `${x(one.layer || 0)},${y((one.ends || [0, 0])[1])}`);
    const lower = windows.map((one) => `${x(one.layer || 0)},${y((one.ends || [0, 0])[0])}`).reverse();
    svg.append(draw("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
  }
  if (windows.every((one) => one.control !== null)) {
    svg.append(draw("polyline", { class: "random", points: windows.map((one) => `${x(one.layer || 0)},${y(one.control || 0)}`).join(" ") }));
  }
  svg.append(draw("polyline", { class: "cut", points: windows.map((one) => `${x(one.layer || 0)},${y(one.value)}`).join(" ") }));
  for (const one of windows) {
    const dot = draw("circle", { class: "dot", cx: x(one.layer || 0), cy: y(one.value), r: 3.2 });
    dot.append(draw("title", {}, one.does));
    svg.append(dot);
  }
  return svg;
}
