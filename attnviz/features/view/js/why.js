import { byId, fill, make } from "./dom.js";
import { known, upward } from "./numbers.js";
import { headOf, headsOf, isLoaded, itemOf, kindOf, load, rowWeights } from "./data.js";
import { get, set } from "./store.js";
import { track } from "./busy.js";
import { firstQuestion } from "./who.js";
import { loadTerms, termsOf } from "./terms.js";
import { drawReason } from "./whypanel.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */

/** A pointer that moved so far between down and up has dragged, not asked. */
const DRAGGED = 6;

/** What had the focus before the panel opened. @type {HTMLElement | null} */
let before = null;
/** The pair that is pointed at, shown in place of the one that was asked about. */
let pointed = "";
/** The last pair that was pointed at, for fingers, which leave before they ask. */
let last = "";

/** The weights' own heads, whatever the maps show. @param {State} state */
function weighed(state) {
  return { ...state, writes: false };
}

/** The head whose weights are explained. @param {State} state */
function headNow(state) {
  const single = ["overview", "card"].includes(state.view) || state.on.includes(state.head);
  return headOf(weighed(state), single ? state.head : state.on[0]);
}

/** The head of the small map that is pointed at, to be chosen with a pair in it. */
function chosen() {
  const tile = /** @type {HTMLElement | null} */ (document.querySelector("#overview-tiles [data-head]:hover"));
  return tile?.dataset.head ? { head: tile.dataset.head } : {};
}

/** The pair that is explained. @param {State} state */
export function explained(state) {
  const [, q = "", k = ""] = /^(q\d+)(k\d+)$/.exec(state.why) || [];
  return { q, k };
}

/** Whether any head of the text can be explained. @param {State} state */
export function explains(state) {
  return headsOf(weighed(state)).some(({ data }) => data.terms);
}

/** A pair of tokens, or nothing. @param {string | undefined} who */
function pairIn(who) {
  return /^q\d+k\d+$/.test(who || "") ? String(who) : "";
}

/** The largest weight of a head, as a pair. @param {State} state @param {Head} head */
function strongest(state, head) {
  const kind = kindOf(weighed(state));
  const [T, S] = [kind.queries, kind.keys].map((axis) => itemOf(state).axes[axis].labels.length);
  let [best, pair] = [-1, "q0k0"];
  for (let r = 0; r < T; r++) {
    rowWeights(head.site, head.row, r, S).forEach((weight, c) => { if (weight > best) [best, pair] = [weight, `q${r}k${c}`]; });
  }
  return pair;
}

/**
 * Ask why, of what is pointed at, or stop asking.
 * @param {import("./types.js").View} view the view that is open
 * @param {boolean} [only] do nothing where no cell is pointed at
 * @returns {boolean} whether there was something to ask
 */
export function askWhy(view, only = false) {
  const state = get();
  const head = headNow(state);
  const now = pairIn(view.pointed?.());
  if (!explains(state) || !head || (only && !now)) return false;
  if (state.why && (!now || now === state.why)) close();
  else {
    if (!state.why) before = /** @type {HTMLElement} */ (document.activeElement);
    const open = (/** @type {string} */ why) => {
      set({ why, ...chosen() });
      if (!state.why) requestAnimationFrame(() => requestAnimationFrame(shown));
    };
    const usual = now || last || pairIn(state.who) || pairIn(firstQuestion(state));
    if (usual) open(usual);
    else track(load(head.site).then(() => open(strongest(state, head))));
  }
  return true;
}

/** The panel has opened: it is in sight, and read. */
function shown() {
  byId("why-title").focus({ preventScroll: true });
  byId("why").scrollIntoView({ block: "nearest" });
}

function close() {
  const inside = byId("why").contains(document.activeElement);
  pointed = last = "";
  set({ why: "" });
  if (inside) (before?.isConnected ? before : byId("main")).focus();
}

/** Close the panel if it is open. @returns {boolean} whether it was */
export function closeWhy() {
  const open = Boolean(get().why);
  if (open) close();
  return open;
}

/** @param {State} state */
export function drawWhy(state) {
  const able = explains(state);
  byId("ask-why").hidden = !able;
  byId("ask-why").setAttribute("aria-expanded", String(Boolean(state.why)));
  byId("why").hidden = !able || !state.why;
  if (able && state.why) draw(state);
}

/** @param {State} state */
function draw(state) {
  const head = headNow(state);
  if (!head) return;
  const { terms } = head.data;
  const place = byId("why-body");
  if (!terms) {
    fill(place, ...others(state, head));
    return;
  }
  const kind = kindOf(weighed(state));
  const [queries, keys] = [kind.queries, kind.keys].map((axis) => itemOf(state).axes[axis].labels);
  const ready = termsOf(terms);
  if (!ready || !isLoaded(head.site)) {
    track(Promise.all([loadTerms(terms, queries.length, keys.length), load(head.site)]).then(() => { if (get().why) draw(get()); }));
    return;
  }
  const [r, c] = (pointed || state.why).slice(1).split("k").map(Number);
  if (r >= queries.length || c >= keys.length) {
    fill(place, make("p", {}, "There is no such token."));
    return;
  }
  const [low, high] = [-0.5, 0.5].map((shift) => rowWeights(head.site, head.row, r, keys.length, shift)[c]);
  const { error } = terms;
  /** @param {string[]} labels @param {number} at */
  const named = (labels, at) => `${labels[at]}${labels.indexOf(labels[at]) !== labels.lastIndexOf(labels[at]) ? ` (${at})` : ""}`;
  drawReason(place, {
    terms: ready, r, c, head: head.id, query: named(queries, r), key: (s) => named(keys, s),
    weightText: (weight) => known(Math.max(0, weight - error), Math.min(1, weight + error), 3),
    jump: (id) => set({ head: id, on: [id] }),
    error, shown: `${known(low, high, 3)} in the map`,
    said: [
      `Queries and keys are kept in 16 bits: weights computed from them are off by at most ${upward(error, 2)}.`,
      ...(state.words ? ["This is about tokens; words are sums of their keys and means of their queries."] : []),
    ],
  });
}

/** What there is instead of a head without queries and keys. @param {State} state @param {Head} head */
function others(state, head) {
  const able = headsOf(weighed(state)).filter(({ data }) => data.terms);
  const buttons = able.slice(0, 24).map(({ id }) => {
    const button = make("button", { type: "button" }, id);
    button.addEventListener("click", () => set({ head: id, on: [id] }));
    return button;
  });
  return [
    make("p", {}, `The page does not hold queries and keys of head ${head.id} (attnviz view --why ${head.id} puts them in); it holds those of:`),
    make("div", { class: "buttons" }, ...buttons, able.length > buttons.length ? `and ${able.length - buttons.length} more` : ""),
  ];
}

/** @param {() => import("./types.js").View} current the view that is open */
export function startWhy(current) {
  let waiting = 0;
  const follow = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      const now = get().view === "overview" ? "" : pairIn(current().pointed?.());
      if (!get().why || now === pointed) return;
      pointed = now;
      draw(get());
    });
  };
  /** @type {[number, number]} */
  let down = [0, 0];
  const main = byId("main");
  main.addEventListener("pointermove", follow);
  main.addEventListener("pointerleave", follow);
  document.addEventListener("keyup", (event) => { if (event.shiftKey) follow(); });
  main.addEventListener("pointerdown", (event) => { down = [event.clientX, event.clientY]; });
  main.addEventListener("pointerup", (event) => {
    if (Math.hypot(event.clientX - down[0], event.clientY - down[1]) > DRAGGED) return;
    last = pairIn(current().pointed?.());
    if (last && get().why) set({ why: last, ...chosen() });
  });
  byId("card-body").addEventListener("click", (event) => {
    const who = pairIn(/** @type {HTMLElement} */ (event.target).closest("button")?.dataset.who);
    if (who && get().why) set({ why: who });
  });
  byId("ask-why").addEventListener("click", () => { if (!closeWhy()) askWhy(current()); });
  byId("why-close").addEventListener("click", closeWhy);
}
