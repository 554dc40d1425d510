import { byId } from "./dom.js";
import { startEmbed } from "./embed.js";
import { startMade } from "./made.js";

/** Say on top of the page what could not be done, or nothing. @param {string} text */
export function tell(text) {
  byId("failure").hidden = !text;
  byId("failure").textContent = text;
}

/** Say on top of the page that it failed. @param {unknown} why */
export function failed(why) {
  tell(`This page failed: ${why instanceof Error ? why.message : why}`);
  console.error(why);
}

/** A page says when it fails. */
function watchFailures() {
  addEventListener("error", (event) => failed(event.error || event.message));
  addEventListener("unhandledrejection", (event) => failed(event.reason));
}

/** What every page does: it says when it fails and what made it, and fits into a frame of another. */
export function startPage() {
  watchFailures();
  startMade();
  startEmbed();
}

/** What is folded, and open on paper. @type {HTMLDetailsElement[]} */
let unfolded = [];

/** On paper nothing can be opened. */
function unfold() {
  unfolded.push(.../** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll(".how:not([open])")));
  for (const part of unfolded) part.open = true;
}

function fold() {
  for (const part of unfolded) part.open = false;
  unfolded = [];
}

/**
 * A page does that, takes the theme that is picked, and is light on paper.
 * @param {() => void} redraw what has colours of its own
 */
export function startFrame(redraw) {
  startPage();
  const theme = /** @type {HTMLSelectElement} */ (byId("theme"));
  theme.addEventListener("change", () => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.print = "";
    unfold();
    redraw();
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    fold();
    redraw();
  });
}
