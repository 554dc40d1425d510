import { arrow, byId, clamp, say } from "./dom.js";
import { described, headsOf, isFolded, page } from "./data.js";
import { openHelp, startHelp } from "./help.js";
import { get, MIXES, set, sortsOf, toggle, viewsOf } from "./store.js";
import { nextMatch } from "./controls.js";
import { hidePreview } from "./preview.js";
import { tileBeside } from "./overview.js";
import { beside } from "./plane.js";
import { ask } from "./who.js";
import { nextSide, swapSides, toggleBeside, toggleMost } from "./beside.js";
import { askWhy, closeWhy } from "./why.js";
import { hideTip } from "./tip.js";

/** @typedef {import("./types.js").View} View */

/** @type {[string, string][]} */
const HELP = [
  ["← → ↑ ↓", "the head beside, the layer above or below; by likeness the nearest head that way"],
  ["Shift + arrows", "the weight or token beside (map, lines, text, picture or sound)"],
  ["Enter", "open the head of the overview"],
  ["x", "turn this head on or off"],
  ["o", "only this head"],
  ["a", "all heads on"],
  ["m", "blend, mean or maximum of the heads that are on"],
  ["1 – 6", "the views, as their tabs stand: explore, overview, map, lines, text (or picture, sound), head card"],
  ["l", "overview: by layer, by role, by likeness, by what tints it"],
  ["h", "which heads do this: the pair or token that is pointed at or pinned"],
  ["c, b", "compare two maps, or stop; swap them"],
  ["e", "of two maps: all, the first, the second, their difference"],
  ["j", "of two texts or runs: which heads changed most"],
  ["y, Enter", "why this weight: the cell that is pointed at, of heads whose queries and keys are in the page"],
  ["w", "words instead of tokens"],
  ["s, f", "hide separators, hide the first token"],
  ["r", "rescale what is left"],
  ["v", "weights, or what is written with them, where the page has both"],
  ["d", "text, picture, sound: attends to, or is attended to by"],
  ["+ − 0", "map: zoom in, out, all of it"],
  ["/", "search a token; Enter and n: the next match"],
  ["[ ]", "the text before, the text after"],
  ["t", "light, dark, or as the system"],
  ["Esc", "close, let go of the cell and of the pinned token"],
  ["?", "these keys"],
];

/** @param {number} dx @param {number} dy */
function moveHead(dx, dy) {
  const state = get();
  const heads = headsOf(state);
  const now = heads.find(({ id }) => id === state.head) || heads[0];
  const alone = state.on.length === 1 && state.on[0] === state.head;
  /** @param {import("./types.js").Head} head */
  const go = (head) => {
    set(alone ? { head: head.id, on: [head.id] } : { head: head.id });
    say(described(head));
  };
  if (state.view === "overview" && state.sort === "likeness") return go(beside(state, now, dx, dy));
  if (isFolded(state) && (state.view === "overview" || document.activeElement?.closest("#overview-tiles"))) return go(tileBeside(now, dx, dy));
  const layers = [...new Set(heads.map(({ site }) => site))];
  const site = layers[clamp(layers.indexOf(now.site) + dy, 0, layers.length - 1)];
  const line = heads.filter((head) => head.site === site);
  const same = heads.filter((head) => head.site === now.site);
  const next = line[clamp((dy ? same.indexOf(now) : line.indexOf(now)) + dx, 0, line.length - 1)];
  go(next);
}

/**
 * @template T
 * @param {T[]} list
 * @param {T} now
 */
function after(list, now) {
  return list[(list.indexOf(now) + 1) % list.length];
}

/** @param {KeyboardEvent} event @param {View} view @returns {boolean} whether the key means something here */
function pressed(event, view) {
  const state = get();
  const way = arrow(event);
  if (way) {
    if (event.shiftKey) view.step?.(way[0], way[1]);
    else if (!/** @type {HTMLElement} */ (event.target).matches?.("select, input, [role=tab], #lines-frame")) moveHead(way[0], way[1]);
    else return false;
    return true;
  }
  if (event.key === "Escape") {
    hideTip();
    hidePreview();
    if (closeWhy()) return true;
    view.escape?.();
    set({ pin: "", who: "", spans: "" });
    return true;
  }
  if (event.key === "Enter") {
    if (/** @type {HTMLElement} */ (event.target).closest?.("button, a, summary")) return false;
    if (state.view !== "overview") return askWhy(view, true);
    set({ view: "map", on: [state.head] });
    return true;
  }
  return state.letters && single(event.key, view);
}

/**
 * A key that is one letter, digit or sign: these can be turned off (WCAG 2.1.4).
 * @param {string} key
 * @param {View} view
 * @returns {boolean} whether the key means something here
 */
function single(key, view) {
  const state = get();
  switch (key) {
    case "x": toggle(state.head); return true;
    case "o": set({ on: [state.head] }); return true;
    case "a": set({ on: headsOf(state).map(({ id }) => id) }); return true;
    case "m": set({ mix: after(MIXES, state.mix) }); return true;
    case "l": set({ view: "overview", sort: after(sortsOf(state).map(String), state.sort) }); return true;
    case "h": ask(view); return true;
    case "c": toggleBeside(); return true;
    case "b": swapSides(); return true;
    case "e": nextSide(); return true;
    case "j": toggleMost(); return true;
    case "y": return askWhy(view);
    case "w": set({ words: !state.words }); return true;
    case "s": set({ separators: !state.separators }); return true;
    case "f": set({ first: !state.first }); return true;
    case "r": set({ rescale: !state.rescale }); return true;
    case "v": set({ writes: !state.writes }); return true;
    case "d": set({ toward: !state.toward }); return true;
    case "t": set({ theme: after(["system", "light", "dark"], state.theme) }); return true;
    case "+": case "=": view.zoom?.(1.5); return true;
    case "-": view.zoom?.(1 / 1.5); return true;
    case "0": view.zoom?.(0); return true;
    case "/": byId("panel").setAttribute("open", ""); dispatchEvent(new Event("resize")); byId("find").focus(); return true;
    case "n": nextMatch(1); return true;
    case "N": nextMatch(-1); return true;
    case "[": set({ text: Math.max(0, state.text - 1) }); return true;
    case "]": set({ text: Math.min(page.items.length - 1, state.text + 1) }); return true;
    case "?": openHelp(); return true;
    default:
      if (/^[1-6]$/.test(key) && viewsOf(state)[Number(key) - 1]) {
        set({ view: viewsOf(state)[Number(key) - 1] });
        return true;
      }
      return false;
  }
}

/** @param {() => View} current the view that is open */
export function startKeys(current) {
  startHelp(HELP);
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const typing = target.matches?.("input:not([type=checkbox]):not([type=range]), select");
    if (event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]")) return;
    if (pressed(event, current())) event.preventDefault();
  });
  byId("tabs").addEventListener("keydown", (event) => {
    const way = arrow(event);
    if (!way || event.shiftKey) return;
    const views = viewsOf(get());
    const view = views[clamp(views.indexOf(get().view) + way[0] + way[1], 0, views.length - 1)];
    set({ view });
    /** @type {HTMLElement | null} */ (byId("tabs").querySelector(`[data-view=${view}]`))?.focus();
    event.preventDefault();
  });
  byId("skip").addEventListener("click", () => (current().focus?.() || byId("main")).focus());
}
