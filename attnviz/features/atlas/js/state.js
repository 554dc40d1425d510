import { heads } from "./data.js";

/**
 * What the page shows, as its address holds it: `#2.4&tint=cost&find=needed`.
 * @typedef {{ head: string, find: string, sort: string, up: boolean, tint: string, without: string[] }} State
 */

/** @type {State} */
const START = { head: "", find: "", sort: "", up: false, tint: "", without: [] };
/** @type {State} */
let state = { ...START };
/** @type {((state: State) => void)[]} */
const listeners = [];

export function get() {
  return state;
}

/** @param {(state: State) => void} listener */
export function subscribe(listener) {
  listeners.push(listener);
}

/** @param {Partial<State>} patch */
export function set(patch) {
  const moved = patch.head !== undefined && patch.head !== state.head;
  state = { ...state, ...patch };
  const address = `#${asHash()}`;
  try {
    if (moved) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  } catch {
    // a notebook's frame has no address of its own
  }
  tell();
}

function tell() {
  for (const listener of listeners) listener(state);
}

function asHash() {
  const parts = new URLSearchParams();
  for (const name of /** @type {const} */ (["find", "sort", "tint"])) if (state[name]) parts.set(name, state[name]);
  if (state.up) parts.set("up", "1");
  if (state.without.length) parts.set("without", state.without.join(","));
  return [state.head, parts.toString()].filter(Boolean).join("&");
}

/** Take over what the address says. */
export function fromHash() {
  const [first = "", ...rest] = location.hash.slice(1).split("&");
  const name = decodeURIComponent(first);
  const known = heads.some((head) => head.name === name);
  const parts = new URLSearchParams((known ? rest : [first, ...rest]).join("&"));
  state = {
    head: known ? name : "", find: parts.get("find") || "", sort: parts.get("sort") || "", up: parts.get("up") === "1",
    tint: parts.get("tint") || "", without: (parts.get("without") || "").split(",").filter(Boolean),
  };
  tell();
}
