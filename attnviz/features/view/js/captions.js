import { byId, chip, fill, make } from "./dom.js";
import { described, headsOf, itemOf, kindOf } from "./data.js";
import { ink } from "./colors.js";
import { saidOf } from "./panel.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Painter} Painter */

/**
 * What stands above a map or lines: the heads and what must be said.
 * @param {string} id
 * @param {Panel} panel
 * @param {State} state
 * @param {string} [text] which text, where several are shown
 */
export function caption(id, panel, state, text = "") {
  const chips = panel.layers.map((layer) => {
    const head = headsOf(state).find(({ title }) => title === layer.name);
    const roles = head ? described(head).split(", ").slice(1).join(", ") : "";
    return make("span", { class: "head-name" }, panel.layers.length > 1 ? chip(layer.color) : "", layer.name,
      make("span", { class: "head-roles" }, roles ? ` ${roles}` : ""));
  });
  const said = saidOf(panel, state);
  fill(byId(id), ...(text ? [make("bdi", { class: "soft" }, text)] : []), ...chips, make("span", { class: "said" }, said.join(" ")));
}

/**
 * The title of a saved picture.
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {number} width
 * @param {number} height
 */
export function heading(painter, panel, state, width, height) {
  const names = `${itemOf(state).model}, ${kindOf(state).title}: ${panel.layers.map(({ name }) => name).join(", ")}`;
  return headed(painter, names, saidOf(panel, state).join(" ") || itemOf(state).label, width, height);
}

/**
 * Two lines above a saved picture.
 * @param {Painter} painter
 * @param {string} title
 * @param {string} said
 * @param {number} width
 * @param {number} height
 */
export function headed(painter, title, said, width, height) {
  const tones = ink();
  painter.text(title, 10, 14, { size: 13, weight: 600, color: tones.text });
  painter.text(said, 10, 31, { size: 10.5, color: tones.soft });
  const needed = Math.max(painter.measure(title, 13, 600), painter.measure(said, 10.5)) + 20;
  return { width: Math.max(width, Math.min(needed, 1600)), height };
}
