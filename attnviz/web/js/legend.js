import { make } from "./dom.js";
import { NOT_ALLOWED, NOT_SELECTED } from "./masked.js";

/**
 * What the colours of a map mean: a bar with its ends, and the colour of what is not allowed.
 * @param {string[]} colors from one end to the other, as CSS has them
 * @param {string} low
 * @param {string} high
 * @param {boolean} masked whether some cells are
 * @param {boolean} [unselected] whether an indexer left some of them out
 * @returns {(Node | string)[]}
 */
export function legend(colors, low, high, masked, unselected = false) {
  const bar = make("i", {});
  bar.style.background = `linear-gradient(to right, ${colors.join(", ")})`;
  const scale = make("span", { class: "scale" }, low, bar, high);
  const kinds = [...(masked ? [["masked", NOT_ALLOWED]] : []), ...(unselected ? [["unselected", NOT_SELECTED]] : [])];
  return [scale, ...kinds.map(([name, said]) => make("span", { class: "scale" }, make("i", { class: name }), said))];
}
