import { byId, fill } from "./dom.js";
import { get, page, set } from "./store.js";

export function startTour() {
  byId("open-tour").hidden = !page.tour.length;
  byId("open-tour").addEventListener("click", () => to(0));
  byId("tour-next").addEventListener("click", () => to(get().step + 1));
  byId("tour-back").addEventListener("click", () => to(get().step - 1));
  byId("tour-end").addEventListener("click", () => to(-1));
}

/** @param {number} step */
function to(step) {
  const found = page.tour[step];
  if (!found) {
    set({ step: -1 });
    byId("open-tour").focus();
    return;
  }
  set({ step, text: found.text, off: new Set(found.off), head: found.head, at: found.at });
}

export function drawTour() {
  const { step } = get();
  const found = page.tour[step];
  byId("tour").hidden = !found;
  if (!found) return;
  fill(byId("tour-said"), found.say);
  fill(byId("tour-count"), `${step + 1} of ${page.tour.length}`);
  byId("tour-back").toggleAttribute("disabled", step === 0);
  fill(byId("tour-next"), step + 1 === page.tour.length ? "done" : "next");
}
