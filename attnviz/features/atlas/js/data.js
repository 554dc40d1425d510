import { byId, make, painted } from "./dom.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Role} Role */

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");
export const heads = data.atlas.heads;
export const metric = data.atlas.metric;
export const cost = data.atlas.cost;

/** A role's sign and name. @param {Role} role */
export function roleSign(role) {
  const { color, ink, code } = data.roles[role.name];
  return painted(make("span", { class: "code" }, code), { ground: color, ink });
}

/** What can be searched in a head. @param {Head} head */
export function words(head) {
  return [
    head.name,
    head.does ? `does ${head.does.name}` : "",
    head.rests ? `sink ${head.rests.name}` : "",
    head.effect?.needed ? "needed" : "",
    ...head.relations.map(({ relation }) => `syntactic ${relation}`),
    head.coreference ? "coreference" : "",
    head.copies ? "copies" : "",
    ...head.strings.slice(0, 3).map(({ text }) => text),
  ].join(" ").toLowerCase();
}
