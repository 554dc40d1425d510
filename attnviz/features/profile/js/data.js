import { byId } from "./dom.js";

/** @typedef {import("./types.js").Head} Head */

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");
export const heads = data.heads;

/** A relation or a class in words. @param {string} name */
export function said(name) {
  return data.said.relations[name] || name;
}
