import { pinned } from "./panel.js";
import { withToken } from "./rank.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {{ queries: import("./types.js").Axis, keys: import("./types.js").Axis }} Axes */
/** @typedef {import("./types.js").Token} Token */

/**
 * The token that is pinned, on the side that it stands for.
 * @param {Axes} axes
 * @param {State} state
 * @returns {Token | null}
 */
export function fromPin({ queries, keys }, state) {
  const same = queries === keys;
  const q = pinned(queries, same ? state.pin.replace("k", "q") : state.pin, "q");
  if (q >= 0) return { side: "q", i: q };
  const k = pinned(keys, state.pin, "k");
  return k >= 0 ? { side: "k", i: k } : null;
}

/**
 * The token whose weights are shown: the one under the pointer or in focus, else the pinned one. Of
 * one sequence it attends, or is attended to, as the state says.
 * @param {Axes} axes
 * @param {State} state
 * @param {Token | null} over
 * @returns {Token | null}
 */
export function chosen(axes, state, over) {
  const token = over || fromPin(axes, state);
  if (!token || axes.queries !== axes.keys) return token;
  return { side: state.toward ? "k" : "q", i: token.i };
}

/**
 * A question with a token more: the first is what attends, or what is attended to.
 * @param {Axes} axes
 * @param {State} state
 * @param {Token} token
 * @param {string} who
 */
export function question({ queries, keys }, state, { side, i }, who) {
  const same = queries === keys;
  const from = (side === "q" ? queries : keys).from[i];
  return withToken(who, same ? (state.toward ? "k" : "q") : side, from, same);
}

/**
 * What a click on a token does: pin it, let go of it, or ask about it.
 * @param {Axes} axes
 * @param {State} state
 * @param {Token} token
 * @returns {Partial<State>}
 */
export function clicked(axes, state, token) {
  const pin = token.side + (token.side === "q" ? axes.queries : axes.keys).from[token.i];
  if (state.who) return { pin, who: question(axes, state, token, state.who) };
  return { pin: state.pin === pin ? "" : pin };
}

/**
 * The question that is pointed at: the pinned token and the one under the pointer.
 * @param {Axes | null} axes
 * @param {State} state
 * @param {Token | null} over
 */
export function pointedAt(axes, state, over) {
  if (!axes || !over) return "";
  const held = fromPin(axes, state);
  const first = held ? question(axes, state, held, "") : "";
  return held && held.i === over.i && held.side === over.side ? first : question(axes, state, over, first);
}
