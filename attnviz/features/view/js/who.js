import { byId, fill, make } from "./dom.js";
import { described, firstOf, kindOf, page, several } from "./data.js";
import { get, set } from "./store.js";
import { entry, markCurrent, startRanking } from "./ranklist.js";
import { axesOf, nounOf, panelOf, saidOf } from "./panel.js";
import { askedOf, asksPair, ranking } from "./rank.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./rank.js").Ranked} Ranked */

/** So many heads that cannot be told apart are named. */
const MOST_NAMED = 4;

/** What the lists of tokens were filled for. @type {Axis[]} */
let filled = [];
/** @type {Ranked[] | null} */
let listed = null;

/** The pair at which the first head shows what it does, as a question. @param {State} state */
export function firstQuestion(state) {
  const pair = kindOf(state).see?.pair;
  return pair ? `q${pair[0]}k${pair[1]}` : "";
}

/** Ask about what is pointed at, or stop asking. @param {import("./types.js").View} view the view that is open */
export function ask(view) {
  const state = get();
  const { queries } = axesOf(state);
  const next = view.pointed?.() || state.pin;
  if (state.who && (!next || next === state.who || (next === state.pin && state.who.includes(next)))) set({ who: "" });
  else set({ who: next || firstQuestion(state) || `q${queries.from[0] ?? 0}` });
}

/** @param {Ranked} ranked @param {string} noun */
function entryOf({ head, part, weight, share }, noun) {
  const label = `${head.name} ${weight} ${share}: ${noun} and its share of all heads', ${described(head)}`;
  return entry(head, part, described(head), label, ` ${weight} `, make("span", { class: "soft" }, share));
}

/** @param {State} state */
function sentence(state) {
  const { queries, keys } = axesOf(state);
  const asked = askedOf(state);
  if (!asked || (asked.r < 0 && asked.c < 0)) return "The token asked about is hidden.";
  if (!asksPair(state)) return "Its row and its column are marked in every small map of the overview. Choose a second token, or point at a cell: every head is then ranked by it.";
  if (!asked.pair) return "A token asked about is hidden.";
  const ranked = ranking(state);
  if (!ranked) return "Unpacking the maps of all layers…";
  const said = saidOf(panelOf({ ...state, view: "card" }, [ranked[0].head.id]), { ...state, mix: "mean" }).join(" ");
  const pair = `${queries.named[asked.r]} → ${keys.named[asked.c]}`;
  const [first] = ranked;
  const like = ranked.filter(({ high }) => high >= first.low);
  if (!first.value) return `${pair}: no head has any ${nounOf(state)} there. ${said}`.trim();
  if (like.length > 1) {
    const names = like.length > MOST_NAMED ? several(state, like.length) : `${kindOf(state).whole ? "layers" : "heads"} ${like.map(({ head }) => head.name).join(", ")}`;
    return `${pair}: most by ${names}, which ${page.bits} bits do not tell apart, ${nounOf(state)} ${first.weight}. ${said}`.trim();
  }
  return `${pair}: most by ${first.head.title}, ${nounOf(state)} ${first.weight}, ${first.share} of what all ${several(state, ranked.length)} have there. ${said}`.trim();
}

/** @param {string} id @param {Axis} axis @param {string} none @param {number} chosen */
function options(id, axis, none, chosen) {
  const place = /** @type {HTMLSelectElement} */ (byId(id));
  fill(place, make("option", { value: "" }, none), ...axis.named.map((name, i) => make("option", { value: axis.from[i] }, name)));
  place.value = chosen < 0 ? "" : String(axis.from[chosen]);
}

/** @param {State} state */
export function drawWho(state) {
  const open = state.who !== "";
  const opener = byId("ask-who");
  opener.setAttribute("aria-expanded", String(open));
  byId("who").hidden = !open;
  if (!open) return;
  const { queries, keys } = axesOf(state);
  const asked = askedOf(state);
  const single = !asksPair(state);
  const [r, c] = asked ? [asked.r, asked.c] : [-1, -1];
  if (filled[0] !== queries || filled[1] !== keys) {
    filled = [queries, keys];
    options("who-query", queries, "any query", -1);
    options("who-key", keys, "any key", -1);
  }
  /** @param {string} id @param {Axis} axis @param {number} i */
  const choose = (id, axis, i) => { /** @type {HTMLSelectElement} */ (byId(id)).value = i < 0 ? "" : String(axis.from[i]); };
  choose("who-query", queries, single && state.who[0] !== "q" ? -1 : r);
  choose("who-key", keys, single && state.who[0] !== "k" ? -1 : c);
  byId("who-said").textContent = sentence(state);
  const ranked = ranking(state);
  if (ranked !== listed || !ranked) {
    listed = ranked;
    fill(byId("who-list"), ...firstOf(state, ranked || []).filter(() => ranked?.[0].value).map((one) => entryOf(one, nounOf(state))));
  }
  markCurrent("who-list");
}

/** @param {() => import("./types.js").View} current the view that is open */
export function startWho(current) {
  byId("ask-who").addEventListener("click", () => {
    if (get().who) set({ who: "" });
    else ask(current());
  });
  const chosen = () => {
    const [query, key] = ["who-query", "who-key"].map((id) => /** @type {HTMLSelectElement} */ (byId(id)).value);
    set({ who: `${query && `q${query}`}${key && `k${key}`}` || `q${axesOf(get()).queries.from[0] ?? 0}` });
  };
  byId("who-query").addEventListener("change", chosen);
  byId("who-key").addEventListener("change", chosen);
  byId("card-body").addEventListener("click", (event) => {
    const who = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.who;
    if (who) set({ who });
  });
  startRanking("who-list");
}
