import { byId, fill, make } from "./dom.js";
import { openHelp, startHelp } from "./help.js";

/** @type {[string, string][]} */
const KEYS = [
  ["← → ↑ ↓", "in the small maps: the head beside, above or below"],
  ["x", "in the small maps: switch this head off or on, as Shift and a click do"],
  ["← →", "in the tokens: the one before or after"],
  ["↑ ↓", "in the large map: the row above or below"],
  ["Enter", "in the large map: why this weight? Then ← → for the key beside"],
  ["Esc", "close what is open"],
  ["?", "this help, wherever no text is written"],
];

/** The help, with the roles that heads can have. @param {import("./types.js").RoleRules} rules */
export function startKeys(rules) {
  startHelp(KEYS);
  const roles = new Map(rules.roles.map((role) => [role.code, role]));
  fill(byId("help-roles"), ...[...roles.values()].flatMap(({ name, code, color, ink }) => {
    const chip = make("span", { class: "code" }, code);
    chip.style.background = color;
    chip.style.color = ink;
    return [chip, ` ${name} `];
  }));
  document.addEventListener("keydown", (event) => {
    const typing = /** @type {HTMLElement} */ (event.target).matches?.("textarea, input[type=number], select");
    if (event.key !== "?" || event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]")) return;
    openHelp();
    event.preventDefault();
  });
}
