import { byId, fill, make, say } from "./dom.js";
import { plural } from "./numbers.js";
import { told } from "./figures.js";
import { drawHeads } from "./headsfigure.js";
import { drawHistograms } from "./histograms.js";
import { drawShares } from "./sharesfigure.js";
import { pointAt } from "./spot.js";
import { askedFor, flush, get, page, set, shownAt } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Step} Step */

/** Whether the page was opened without saying what to show: lessons are then the first choice. */
let inviting = page.lessons.length > 0 && location.hash.length < 2;
/** What the reader had before a lesson. @type {Partial<State> | null} */
let own = history.state?.own || null;
/** @type {Answer | null} */
let current = null;
let width = 1;
/** The step that was drawn last, so that a new one is pointed at, and only once. */
let drawn = "";

function steps() {
  return page.lessons.find(({ name }) => name === get().lesson)?.steps || [];
}

/** @param {number} size of a head's vectors */
export function startLessons(size) {
  width = size;
  byId("open-lessons").hidden = !page.lessons.length;
  byId("open-lessons").addEventListener("click", () => { leave(); inviting = true; drawStep(); byId("lessons").querySelector("button")?.focus(); });
  byId("lesson-next").addEventListener("click", () => go(get().lesson, get().step + 1));
  byId("lesson-back").addEventListener("click", () => go(get().lesson, get().step - 1));
  byId("lesson-again").addEventListener("click", () => set(shownAt(get().lesson, get().step, get().told)));
  byId("lesson-end").addEventListener("click", leave);
  addEventListener("popstate", (event) => { own = event.state?.own || own; });
  addEventListener("resize", () => requestAnimationFrame(point));
  addEventListener("scroll", () => requestAnimationFrame(point), { passive: true });
  fill(byId("lesson-list"), ...page.lessons.map(({ name, title, about, steps: all }, n) => {
    const button = make("button", { type: "button", class: n ? "lesson-card" : "lesson-card first", "data-lesson": name },
      make("b", {}, title), make("span", { class: "small" }, `${about}, ${plural(all.length, "step")}`));
    button.addEventListener("click", () => go(name, 0));
    return button;
  }), alone());
  drawStep();
}

function alone() {
  const button = make("button", { type: "button", id: "look-around" }, "look around alone");
  button.addEventListener("click", () => { inviting = false; drawStep(); byId("text").focus(); });
  return button;
}

/** Go to a step; past the last one, or before the first, to what was there before. @param {string} lesson @param {number} step */
function go(lesson, step) {
  inviting = false;
  if (!page.lessons.find(({ name }) => name === lesson)?.steps[step]) return leave();
  const { text, off, head, at, key, places } = get();
  own ||= { text, off, head, at, key, places };
  remember();
  set(shownAt(lesson, step, -1));
}

/** What is here now is where Back goes; the address of what follows is written later. */
function remember() {
  flush();
  try {
    history.pushState({ own }, "", location.hash);
  } catch {
    // a notebook's frame has no address of its own
  }
}

function leave() {
  if (get().step < 0) return;
  remember();
  set({ ...own, lesson: "", step: -1, told: -1, why: null, divisor: null, other: null, places: own?.places ?? true, noise: 0, bug: "" });
  own = null;
  byId("open-lessons").focus();
}

/** @param {number} choice */
function answerWith(choice) {
  remember();
  set(shownAt(get().lesson, get().step, choice));
}

/** @param {Answer} answer */
export function drawLesson(answer) {
  current = answer;
  drawStep();
}

export function drawStep() {
  const state = get();
  const step = steps()[state.step];
  if (step) inviting = false;
  byId("lessons").hidden = !inviting;
  byId("lesson").hidden = !step;
  document.documentElement.dataset.hides = step?.ask && state.told < 0 ? step.hides : "";
  if (!step) {
    drawn = "";
    drawShares(null, null);
    drawHistograms(0, 1);
    drawHeads(false);
    return pointAt("", null);
  }
  const wanted = askedFor({ ...state, ...shownAt(state.lesson, state.step, state.told) });
  const last = state.step === steps().length - 1;
  const left = askedFor(state) !== wanted;
  byId("lesson-again").hidden = !left || last;
  fill(byId("lesson-title"), page.lessons.find(({ name }) => name === state.lesson)?.title || "");
  fill(byId("lesson-count"), `${state.step + 1} of ${steps().length}`);
  byId("lesson-back").toggleAttribute("disabled", state.step === 0);
  fill(byId("lesson-next"), last ? "done" : step.ask && state.told < 0 ? "skip" : "next");
  byId("lesson-next").classList.toggle("main", !step.ask || state.told >= 0);
  drawShares(step.figure ? current : null, state.divisor);
  drawHistograms(current && step.figure === "products" ? width : 0, state.divisor ?? Math.sqrt(width));
  drawHeads(current !== null && step.figure === "heads");
  const name = `${state.lesson} ${state.step} ${state.told}`;
  // figures are those of the pass that the step is about, whatever is switched afterwards
  if (current?.asked === wanted && drawn !== name) {
    drawn = name;
    tell(step, state.told, current);
    requestAnimationFrame(() => pointAt(step.spot, current, true));
  } else if (left && drawn !== name) fill(byId("lesson-said"), "This is not what the step shows.");
  else point();
}

/** @param {Step} step @param {number} choice @param {Answer} answer */
function tell(step, choice, answer) {
  const text = (/** @type {string} */ one) => told(one, answer, { labels: page.labels, key: step.key, width });
  fill(byId("lesson-said"), text(step.say));
  fill(byId("lesson-ask"), step.ask);
  fill(byId("lesson-choices"), ...(step.ask ? step.choices : []).map((one, n) => chosen(text(one), n, step, choice)));
  fill(byId("lesson-told"), choice < 0 ? "" : text(step.told));
  byId("lesson-told").hidden = choice < 0;
  say(choice < 0 ? `${text(step.say)} ${step.ask}` : text(step.told));
}

/** @param {string} text @param {number} n @param {Step} step @param {number} choice */
function chosen(text, n, step, choice) {
  const mark = choice < 0 ? "" : n === step.right ? " ✓" : n === choice ? " ✗" : "";
  const button = make("button", { type: "button", "aria-pressed": String(n === choice), disabled: choice >= 0 }, `${text}${mark}`);
  button.addEventListener("click", () => { answerWith(n); byId("lesson-next").focus({ preventScroll: true }); });
  return button;
}

function point() {
  const step = steps()[get().step];
  if (step) pointAt(byId("lesson-again").hidden ? step.spot : "", current);
}
