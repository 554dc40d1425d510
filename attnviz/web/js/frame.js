import { byId, fill } from "./dom.js";

/**
 * Say on top of the page that it failed.
 * @param {unknown} why
 */
export function failed(why) {
  byId("failure").hidden = false;
  fill(byId("failure"), `this page failed: ${why}`);
}

/**
 * What every page does: it says when it fails, and takes the theme that is picked.
 * @param {() => void} redraw what has colours of its own
 */
export function startFrame(redraw) {
  addEventListener("error", (event) => failed(event.error || event.message));
  addEventListener("unhandledrejection", (event) => failed(event.reason));
  const theme = /** @type {HTMLSelectElement} */ (byId("theme"));
  theme.addEventListener("change", () => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    redraw();
  });
}
