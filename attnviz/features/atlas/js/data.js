import { byId, make } from "./dom.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Role} Role */

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");
export const heads = data.atlas.heads;
export const metric = data.atlas.metric;

/** A figure with two digits that count, and its sign where it is a change. @param {number} value @param {boolean} [sign] */
export function figure(value, sign = false) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const decimals = Math.min(4, Math.max(0, 1 - Math.floor(Math.log10(size))));
  const text = size < 0.00005 ? "0" : size.toFixed(decimals);
  return (value < 0 && text !== "0" ? "−" : sign && text !== "0" ? "+" : "") + text;
}

/** @param {number} share */
export function percent(share) {
  const whole = Math.round(100 * share);
  return `${whole < 0 ? "−" : ""}${Math.abs(whole)} %`;
}

/** How many times a share is another. @param {number} share @param {number} other */
export function times(share, other) {
  return `×${figure(share / other)}`;
}

/** An interval, or nothing where it is not known. @param {number | null} low @param {number | null} high @param {(value: number) => string} shown */
export function interval(low, high, shown = figure) {
  return low === null || high === null ? "" : ` [${shown(low)}, ${shown(high)}]`;
}

/** A role's sign and name. @param {Role} role */
export function roleSign(role) {
  const { color, ink, code } = data.roles[role.name];
  const sign = make("span", { class: "code" }, code);
  sign.style.background = color;
  sign.style.color = ink;
  return sign;
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
