import { byId, capital, fill, make } from "./dom.js";
import { shown } from "./numbers.js";
import { headsOf, itemOf, kindOf, titleOf } from "./data.js";
import { get, set, shows } from "./store.js";
import { loadedPanel, pairsTable } from "./panel.js";
import { look, onLook } from "./link.js";
import { map, passOver } from "./map.js";
import { markToken, overview } from "./overview.js";
import { shifted } from "./painter.js";
import { passing, textView } from "./text.js";
import { firstQuestion } from "./who.js";

/** @typedef {import("./types.js").State} State */

/** Between the parts of a saved stage. */
const GAP = 24;

/** What the first head does, in a sentence with an example, which leads there. @param {State} state */
export function drawLead(state) {
  const { see, opening, queries, keys, whole } = kindOf(state);
  byId("opening").hidden = !see || !["stage", "overview"].includes(state.view);
  if (!see) return;
  const { axes } = itemOf(state);
  /** @param {number} axis @param {number} i */
  const named = (axis, i) => {
    const labels = axes[axis].inline;
    const several = labels.filter((label) => label === labels[i]).length > 1;
    return make("em", {}, make("bdi", {}, labels[i] + (several ? ` (${i})` : "")));
  };
  const { said, pair, weight, hedge, doubt } = see;
  const example = pair ? [": ", named(queries, pair[0]), " looks at ", named(keys, pair[1]), weight === null ? "" : ` (${shown(weight)})`] : [];
  const name = whole ? titleOf(state, opening) : `Head ${opening}`;
  fill(byId("opening"), make("button", { type: "button", class: "link", "data-head": opening }, `${name} ${hedge}${said}`, ...example, "."), " ", make("span", { class: "small", id: "doubt" }, `${capital(doubt)}.`));
}

/** The head before or after. @param {number} by */
function step(by) {
  const heads = headsOf(get());
  const at = heads.findIndex(({ id }) => id === get().head);
  const { id } = heads[(at + by + heads.length) % heads.length];
  set({ head: id, on: [id] });
}

export function startStage() {
  byId("opening").addEventListener("click", (event) => {
    const id = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.head;
    if (!id) return;
    const who = firstQuestion(get());
    const pin = who.split("k")[0];
    set(get().view === "stage" ? { head: id, on: [id], pin } : { view: "map", head: id, on: [id], who, pin });
  });
  byId("head-before").addEventListener("click", () => step(-1));
  byId("head-after").addEventListener("click", () => step(1));
  addEventListener("swiped", (event) => step(/** @type {CustomEvent<number>} */ (event).detail));
  onLook((token, from) => {
    const state = get();
    if (from !== "text" && shows(state, "text") && loadedPanel(state)) passing(token);
    if (from !== "map" && shows(state, "map")) passOver(token);
    if (shows(state, "overview")) markToken(state, token);
  });
}

/** The text, the head that is shown and all heads together. @type {import("./types.js").View} */
export const stage = {
  draw(state, changed) {
    textView.draw(state, changed);
    map.draw(state, changed);
    if (shows(state, "overview")) overview.draw(state, changed);
    look(null, "");
  },
  picture(painter, state) {
    const text = textView.picture(painter, state);
    const head = map.picture(shifted(painter, 0, text.height + GAP), state);
    const left = Math.max(text.width, head.width);
    const all = overview.picture(shifted(painter, left + GAP, 0), state);
    return { width: left + GAP + all.width, height: Math.max(text.height + GAP + head.height, all.height) };
  },
  numbers: pairsTable,
  pointed: () => textView.pointed?.() || map.pointed?.() || overview.pointed?.() || "",
  step: (dx, dy) => map.step?.(dx, dy),
  zoom: (factor) => map.zoom?.(factor),
  escape: () => map.escape?.(),
  focus: () => textView.focus?.() || null,
};
