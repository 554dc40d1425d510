import { byId, fill } from "./dom.js";
import { isLoaded, sitesShown } from "./data.js";
import { get } from "./store.js";
import { drawnSvg } from "./save.js";

/** @typedef {import("./types.js").View} View */

/** Views that are drawings: paper gets the whole of them, at the width of a page. */
const DRAWN = ["overview", "map", "lines"];

/**
 * On paper the page is light, and a drawing is as large as the paper, not as the window.
 * @param {() => View} current the view that is open
 * @param {() => void} redraw
 */
export function startPrint(current, redraw) {
  addEventListener("beforeprint", () => {
    const state = get();
    const root = document.documentElement;
    root.dataset.print = "";
    redraw();
    if (!DRAWN.includes(state.view) || !sitesShown(state).every(isLoaded)) return;
    const drawing = new DOMParser().parseFromString(drawnSvg(current()), "image/svg+xml").documentElement;
    drawing.removeAttribute("width");
    drawing.removeAttribute("height");
    root.dataset.print = state.view;
    fill(byId("print"), /** @type {any} */ (drawing));
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    fill(byId("print"));
    redraw();
  });
}
