import { byId } from "./dom.js";
import { get } from "./store.js";
import { draw } from "./svg.js";

/** @typedef {import("./types.js").Answer} Answer */

const AROUND = 6;

/** The map that what is meant is seen in. */
function map() {
  return byId(byId("after").hidden ? "map-before" : "map-after");
}

/** Where something is in the window. @param {string} spot @param {Answer | null} answer @returns {DOMRect | null} */
function placeOf(spot, answer) {
  const ids = { words: "words-part", river: "river", text: "text", figure: "shares", map: "head-part" };
  if (spot in ids) {
    const found = byId(ids[/** @type {keyof typeof ids} */ (spot)]);
    return spot === "map" ? map().getBoundingClientRect() : found.getBoundingClientRect();
  }
  if (!answer) return null;
  const box = map().getBoundingClientRect();
  const step = box.width / answer.ids.length;
  const { key } = get();
  if (spot === "row") return new DOMRect(box.x, box.y + answer.at * step, box.width, step);
  if (spot === "cell") return new DOMRect(box.x + (key ?? 0) * step, box.y + answer.at * step, step, step);
  return null;
}

/**
 * Point at what is meant: light on it, an arrow from what is said, and both in sight.
 * @param {string} spot
 * @param {Answer | null} answer
 * @param {boolean} [into] scroll it into sight
 */
export function pointAt(spot, answer, into = false) {
  const layer = byId("spot");
  if (spot === "river") /** @type {HTMLDetailsElement} */ (byId("river-fold")).open = true;
  let box = spot ? placeOf(spot, answer) : null;
  layer.toggleAttribute("hidden", !box || !box.width);
  if (!box || !box.width) return;
  const panel = byId("lesson");
  if (into) {
    const top = panel.offsetHeight + 44;
    const most = innerHeight - 24;
    // the panel sticks to the top of the window, so what is meant is to be below it
    const by = box.bottom > most || box.top < top ? box.top - Math.max(top, Math.min(most - box.height, innerHeight / 2)) : 0;
    if (Math.abs(by) > 2) scrollBy({ top: by, behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth" });
    box = /** @type {DOMRect} */ (placeOf(spot, answer));
  }
  const said = panel.getBoundingClientRect();
  const [left, top, right, bottom] = [box.left - AROUND, box.top - AROUND, box.right + AROUND, box.bottom + AROUND];
  const [w, h] = [innerWidth, innerHeight];
  layer.setAttribute("viewBox", `0 0 ${w} ${h}`);
  const hole = `M${left} ${top}H${right}V${bottom}H${left}Z`;
  const own = `M${said.left} ${said.top}H${said.right}V${said.bottom}H${said.left}Z`;
  const x = Math.min(Math.max((left + right) / 2, said.left + 24), said.right - 24);
  const arrow = top > said.bottom + 14 ? `M${x} ${said.bottom}V${top - 3}M${x - 6} ${top - 10}L${x} ${top - 2}L${x + 6} ${top - 10}` : "";
  const parts = [["shade", `M0 0H${w}V${h}H0Z${hole}${own}`], ["edge", hole], ["arrow", arrow]];
  layer.replaceChildren(...parts.map(([name, d]) => draw("path", { class: name, d })));
}
