import { byId, fill } from "./dom.js";
import { headsOf, isLoaded, itemOf, kindOf, load } from "./data.js";
import { get } from "./store.js";
import { drawnSvg } from "./save.js";
import { sitesShown } from "./second.js";

/** @typedef {import("./types.js").View} View */

/** Views that are drawings: paper gets the whole of them, at the width of a page. */
const DRAWN = ["stage", "overview", "map", "lines", "scene"];
/** A drawing that is higher than so many times its width goes over several pages. */
const TALL = 3;
/** So many weights are unpacked ahead, since printing cannot wait for them. */
const MOST_AHEAD = 64e6;

/** Unpack the layers of the text while nothing else happens. */
export function loadAhead() {
  const state = get();
  const { sites, queries, keys } = kindOf(state);
  const [T, S] = [queries, keys].map((axis) => itemOf(state).axes[axis].labels.length);
  if (headsOf(state).length * T * S > MOST_AHEAD) return;
  const next = sites.find((site) => !isLoaded(site));
  if (next) idle(() => load(next).then(loadAhead));
}

/** @param {() => void} work */
function idle(work) {
  if ("requestIdleCallback" in window) requestIdleCallback(work);
  else setTimeout(work, 50);
}

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
    const [width, height] = ["width", "height"].map((name) => Number(drawing.getAttribute(name)));
    root.dataset.print = height > TALL * width ? "tall" : "page";
    drawing.removeAttribute("width");
    drawing.removeAttribute("height");
    fill(byId("print"), /** @type {any} */ (drawing));
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    fill(byId("print"));
    redraw();
  });
}
