import { headOf, headsOf, kindOf, otherOf, page, signOf } from "./data.js";

/** @typedef {import("./types.js").State} State */

/** Views that can show two sides. */
export const COMPARING = ["map", "lines"];
export const SHOWN = ["all", "first", "second", "difference"];
/** Windows from so many pixels on show two maps from the start. */
const WIDE = 1700;

/** What stands beside: `3.1` a head, `@2` the same heads in a text, `3.1@2` both. @param {string} beside */
export function readBeside(beside) {
  const [, head = "", text = ""] = /^(\d+\.\d+)?(?:@(\d+))?$/.exec(beside) || [];
  return { head, text };
}

/** The head with the clearest sign of another kind than this one's, to begin with. @param {State} state */
export function contrast(state) {
  const own = headOf(state, state.head);
  const others = headsOf(state).filter((head) => head !== own);
  if (!own || !others.length) return "";
  /** @param {import("./types.js").Head} head */
  const clear = (head) => {
    const [role] = head.data.roles;
    return role && !role.rests && role.name !== signOf(own) ? role.numbers[2] || 0 : -1;
  };
  return others.reduce((best, head) => (clear(head) > clear(best) ? head : best)).id;
}

/** What stands beside where nothing was chosen: the other run or the other of two texts, else another head. @param {State} state */
export function usual(state) {
  return page.against || page.items.length === 2 ? `@${state.text ^ 1}` : contrast(state);
}

/** What stands beside: what was chosen, or from the start where there is room. @param {State} state */
function chosen(state) {
  if (!COMPARING.includes(state.view) || state.beside === "none") return "";
  return state.beside || (page.against || (innerWidth >= WIDE && state.on.length === 1) ? usual(state) : "");
}

/**
 * The second side of the comparison as a state of its own; null where nothing is compared. Heads that
 * its text does not have are replaced by the one it opens with.
 * @param {State} state
 * @returns {State | null}
 */
export function secondOf(state) {
  const beside = chosen(state);
  if (!beside) return null;
  const { head, text } = readBeside(beside);
  const moved = { ...state, text: text ? Number(text) : state.text };
  moved.kind = kindOf(moved).kind;
  const wanted = (head ? [head] : state.on).filter((id) => headOf(moved, id));
  const on = wanted.length ? wanted : [kindOf(moved).opening || headsOf(moved)[0].id];
  return { ...moved, on, head: on.includes(state.head) ? state.head : on[0] };
}

/**
 * The layers that a saved picture or table of the open view needs, or what it says under the pointer.
 * @param {State} state
 */
export function sitesShown(state) {
  const { view, head, on } = state;
  const ids = view === "overview" || view === "stage" ? headsOf(state).map(({ id }) => id) : view === "card" ? [head] : on;
  const other = view === "overview" || view === "card" ? null : otherOf(state);
  const second = secondOf(state);
  /** @param {State} one @param {string[]} some */
  const sites = (one, some) => some.flatMap((id) => headOf(one, id)?.site || []);
  return [...new Set([...sites(state, ids), ...(other ? sites(other, ids) : []), ...(second ? sites(second, second.on) : [])])];
}

/** The layers that ranking heads by what changed needs, where that is asked for. @param {State} state */
export function sitesRanked(state) {
  const second = state.most ? secondOf(state) : null;
  return second && second.text !== state.text ? [...kindOf(state).sites, ...kindOf(second).sites] : [];
}
