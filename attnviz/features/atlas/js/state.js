import { heads } from "./data.js";
import { observed, setAddress } from "./observed.js";

/**
 * What the page shows, as its address holds it: `#2.4&tint=cost&find=needed`.
 * @typedef {{ head: string, find: string, sort: string, up: boolean, tint: string, without: string[] }} State
 */

/** @type {State} */
const START = { head: "", find: "", sort: "", up: false, tint: "", without: [] };
const store = observed(START);
export const get = store.get;
export const subscribe = store.subscribe;

/** @param {Partial<State>} patch */
export function set(patch) {
  const moved = patch.head !== undefined && patch.head !== get().head;
  const next = { ...get(), ...patch };
  setAddress(`#${asHash(next)}`, moved);
  store.set(next);
}

/** @param {State} state */
function asHash(state) {
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
  store.set({
    head: known ? name : "", find: parts.get("find") || "", sort: parts.get("sort") || "", up: parts.get("up") === "1",
    tint: parts.get("tint") || "", without: (parts.get("without") || "").split(",").filter(Boolean),
  }, true);
}
