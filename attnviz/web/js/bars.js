import { make } from "./dom.js";

/**
 * A line of a chart of bars: a name, a bar, what it says.
 * @param {string | Node} name
 * @param {Node} drawn
 * @param {string} value
 * @param {string} [kind] a class
 */
export function barLine(name, drawn, value, kind = "") {
  const title = typeof name === "string" ? name : name.textContent || "";
  return make("div", { class: `bar-line ${kind}` }, make("bdi", { title }, name), drawn, make("span", {}, value));
}

/** A bar from the left. @param {number} share of the longest */
export function bar(share) {
  const drawn = make("i", {});
  drawn.style.width = `${100 * share}%`;
  return make("div", {}, drawn);
}

/** A bar to the right in blue for more, to the left in orange for less. @param {number} value @param {number} most */
export function signedBar(value, most) {
  const drawn = make("i", { class: value < 0 ? "less" : "more" });
  const size = most ? (50 * Math.abs(value)) / most : 0;
  drawn.style.width = `${size}%`;
  drawn.style.left = `${value < 0 ? 50 - size : 50}%`;
  return make("div", { class: "signed" }, drawn);
}
