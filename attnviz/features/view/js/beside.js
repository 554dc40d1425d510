import { byId, fill, make, say } from "./dom.js";
import { described, headsOf, page } from "./data.js";
import { get, set } from "./store.js";
import { COMPARING, contrast, readBeside, secondOf, SHOWN, usual } from "./second.js";
import { drawMost } from "./most.js";
import { alignmentSaid, runName } from "./comparison.js";

/** @typedef {import("./types.js").State} State */

/** What the lists of heads and texts were filled for. */
let filled = "";

/** @param {string} id */
function list(id) {
  return /** @type {HTMLSelectElement} */ (byId(id));
}

/** @param {string} head @param {string} text */
function written(head, text) {
  return `${head}${text === "" ? "" : `@${text}`}`;
}

/** Begin to compare, with the head beside where two are chosen; or stop. */
export function toggleBeside() {
  const state = get();
  const view = COMPARING.includes(state.view) ? state.view : "map";
  if (secondOf(state)) set({ beside: "none", sides: "all" });
  else if (state.on.length === 2) set({ view, head: state.on[0], on: [state.on[0]], beside: state.on[1], sides: "all" });
  else set({ view, beside: usual(state), sides: "all" });
}

/** Show which heads changed most, in the comparison of two texts or runs that it is of; or hide it. */
export function toggleMost() {
  const state = get();
  const second = secondOf(state);
  if (second && second.text !== state.text) return set({ most: !state.most });
  const count = page.items.length;
  if (count < 2) return say("The page has one text and one run of it.");
  const beside = page.against ? usual(state) : `@${(state.text + 1) % count}`;
  set({ view: COMPARING.includes(state.view) ? state.view : "map", beside, sides: "all", most: true });
}

/** First becomes second, and second first. */
export function swapSides() {
  const state = get();
  const second = secondOf(state);
  if (!second) return;
  const text = second.text === state.text ? "" : String(state.text);
  const head = second.on.join() === state.on.join() ? "" : state.on[0];
  set({ text: second.text, kind: second.kind, head: second.on[0], on: second.on, beside: written(head, text) || state.beside });
}

/** All sides, then one after the other. */
export function nextSide() {
  const state = get();
  if (secondOf(state)) set({ sides: SHOWN[(SHOWN.indexOf(state.sides) + 1) % SHOWN.length] });
}

/** @param {State} state @param {State} second */
function fillLists(state, second) {
  const heads = headsOf(second);
  const key = JSON.stringify([second.text, second.kind, second.writes]);
  if (key !== filled) {
    filled = key;
    fill(list("beside-head"), make("option", { value: "" }, "the same"), ...heads.map((head) => make("option", { value: head.id }, described(head))));
    fill(list("beside-text"), ...page.items.map((_, i) => make("option", { value: i }, runName(i))));
  }
  list("beside-head").value = second.on.join() === state.on.join() ? "" : second.on[0];
  list("beside-text").value = String(second.text);
}

/**
 * The choices of a comparison, and how its sides were laid beside each other.
 * @param {State} state
 * @param {import("./comparison.js").Comparison | null} found
 */
export function drawBeside(state, found) {
  byId("beside").hidden = !found;
  byId("compare").setAttribute("aria-expanded", String(Boolean(found)));
  if (!found) return;
  fillLists(state, found.states[1]);
  byId("beside-text-line").hidden = page.items.length < 2;
  for (const button of byId("sides").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.sides === state.sides));
    if (button.dataset.sides === "difference") button.disabled = !found.difference;
  }
  byId("beside-said").textContent = alignmentSaid(found);
  drawMost(state, found);
}

export function startBeside() {
  byId("compare").addEventListener("click", toggleBeside);
  byId("swap").addEventListener("click", swapSides);
  fill(byId("sides"), ...SHOWN.map((side) => make("button", { type: "button", "data-sides": side }, side)));
  byId("sides").addEventListener("click", (event) => {
    const sides = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.sides;
    // who chooses to see all asks for the difference too
    if (sides) set({ sides, beside: get().beside || usual(get()) });
  });
  list("beside-head").addEventListener("change", () => {
    const state = get();
    const second = secondOf(state);
    const head = list("beside-head").value;
    const text = second && second.text !== state.text ? String(second.text) : "";
    set({ beside: written(head, text) || contrast(state) });
  });
  list("beside-text").addEventListener("change", () => {
    const state = get();
    const text = list("beside-text").value;
    const { head } = readBeside(state.beside || usual(state));
    set({ beside: Number(text) === state.text ? head || contrast(state) : written(head, text) });
  });
}
