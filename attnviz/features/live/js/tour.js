import { byId, fill } from "./dom.js";
import { get, page, set } from "./store.js";

/** Whether the page was opened without saying what to show: the tour is then the first choice. */
let inviting = page.tour.length > 0 && location.hash.length < 2;
/** What was there before the tour. @type {Partial<import("./types.js").State> | null} */
let own = null;

export function startTour() {
  byId("open-tour").hidden = !page.tour.length;
  byId("open-tour").addEventListener("click", () => to(0));
  byId("tour-next").addEventListener("click", () => to(get().step + 1));
  byId("tour-back").addEventListener("click", () => to(get().step - 1));
  byId("tour-end").addEventListener("click", () => to(-1));
  drawTour();
}

/** What a step of the tour shows. @param {number} step @returns {Partial<import("./types.js").State>} */
function shownAt(step) {
  const { text, off, head, at } = page.tour[step];
  return { step, text, off: new Set(off), head, at, key: null };
}

/** Go to a step; past the last one, or before the first, to what was there before. @param {number} step */
function to(step) {
  inviting = false;
  if (!page.tour[step]) {
    set({ step: -1, ...own });
    own = null;
    drawTour();
    byId("open-tour").focus();
    return;
  }
  const { text, off, head, at, key } = get();
  own ||= { text, off, head, at, key };
  try {
    // what is here now is where Back goes; the address of the step follows
    history.pushState(null, "", location.hash);
  } catch {
    // a notebook's frame has no address of its own
  }
  set(shownAt(step));
}

export function drawTour() {
  const { step } = get();
  const found = page.tour[step];
  byId("tour").hidden = !found && !inviting;
  byId("tour-back").hidden = !found;
  fill(byId("tour-end"), found ? "end the tour" : "look around alone");
  if (!found) {
    fill(byId("tour-said"), `New here? ${page.tour.length} steps show how heads of two layers find what comes next: predict first, then see.`);
    fill(byId("tour-count"));
    fill(byId("tour-next"), "start the tour");
    return;
  }
  inviting = false;
  fill(byId("tour-said"), found.say);
  fill(byId("tour-count"), `${step + 1} of ${page.tour.length}`);
  byId("tour-back").toggleAttribute("disabled", step === 0);
  fill(byId("tour-next"), step + 1 === page.tour.length ? "done" : "next");
}
