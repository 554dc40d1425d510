import { byId, fill, make } from "./dom.js";
import { startWords } from "./words.js";

export function openHelp() {
  const help = /** @type {HTMLDialogElement} */ (byId("help"));
  help.showModal();
  byId("help-title").focus();
  help.scrollTop = 0;
}

/**
 * The dialog behind the button with a question mark: figures, keys, words.
 * @param {[string, string][]} keys and what they do
 */
export function startHelp(keys) {
  fill(byId("help-keys"), ...keys.map(([key, what]) => make("tr", {}, make("th", { scope: "row" }, make("kbd", {}, key)), make("td", {}, what))));
  byId("open-help").addEventListener("click", openHelp);
  startWords();
}

/** The same, and the key with a question mark opens it wherever nothing is written. @param {[string, string][]} keys */
export function startHelpByKey(keys) {
  startHelp([...keys, ["?", "this help"]]);
  document.addEventListener("keydown", (event) => {
    const { tagName } = /** @type {HTMLElement} */ (event.target);
    if (event.key !== "?" || ["INPUT", "TEXTAREA", "SELECT"].includes(tagName) || document.querySelector("dialog[open]")) return;
    openHelp();
    event.preventDefault();
  });
}
