import { weightText } from "./digits.js";
import { said } from "./roles.js";
import { page } from "./store.js";

/** @typedef {import("./types.js").HeadFacts} HeadFacts */
/** @typedef {import("./types.js").Measured} Measured */
/** @typedef {import("./types.js").RoleRules} RoleRules */

/** What heads do, as it was measured last, and on which text. */
let [heads, measured] = [page.heads, page.text];

/** Take over what was measured on a text. @param {string} text @param {Measured[][]} roles @param {RoleRules} rules */
export function tellRoles(text, roles, rules) {
  const known = new Map(rules.roles.map(({ name, color, ink, code }) => [name, { name, color, ink, code }]));
  heads = page.heads.map(({ id }, n) => ({ id, said: said(roles[n], page.errors.weight ? weightText : undefined), role: (roles[n].length && known.get(roles[n][0].name)) || null }));
  measured = text;
}

/** The text that roles were measured on last. */
export function rolesText() {
  return measured;
}

/** What every head does. */
export function allFacts() {
  return heads;
}

/** What a head does. @param {string} head */
export function factsOf(head) {
  return /** @type {HeadFacts} */ (heads.find(({ id }) => id === head));
}
