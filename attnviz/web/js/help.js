import { byId, fill, make } from "./dom.js";

export function openHelp() {
  /** @type {HTMLDialogElement} */ (byId("help")).showModal();
}

/**
 * The dialog behind the button with a question mark.
 * @param {[string, string][]} keys and what they do
 */
export function startHelp(keys) {
  fill(byId("help-keys"), ...keys.map(([key, what]) => make("tr", {}, make("th", { scope: "row" }, make("kbd", {}, key)), make("td", {}, what))));
  byId("open-help").addEventListener("click", openHelp);
}
