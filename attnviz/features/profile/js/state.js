import { data, heads } from "./data.js";
import { observed, setAddress } from "./observed.js";

/**
 * What the page shows, as its address holds it: `#3.0&beside=1.4&by=effect&find=bread`.
 * @typedef {{ head: string, beside: string, by: string, find: string, plane: string, color: string }} State
 */

/** @type {State} */
const START = { head: heads[0].name, beside: "", by: Object.keys(data.said.criteria)[0] || "", find: "", plane: "z", color: "class" };
const PLAIN = /** @type {const} */ (["beside", "by", "find", "plane", "color"]);
const store = observed(START);
export const get = store.get;
export const subscribe = store.subscribe;

/** @param {Partial<State>} patch */
export function set(patch) {
  const next = { ...get(), ...patch };
  const parts = new URLSearchParams();
  for (const name of PLAIN) if (next[name] !== START[name]) parts.set(name, next[name]);
  const said = [next.head === START.head ? "" : next.head, parts.toString()].filter(Boolean).join("&");
  setAddress(said ? `#${said}` : "");
  store.set(next);
}

/** Take over what the address says. */
export function fromHash() {
  const [first = "", ...rest] = location.hash.slice(1).split("&");
  const known = heads.some(({ name }) => name === decodeURIComponent(first));
  const parts = new URLSearchParams((known ? rest : [first, ...rest]).join("&"));
  const next = { ...START, head: known ? decodeURIComponent(first) : START.head };
  for (const name of PLAIN) next[name] = parts.get(name) ?? START[name];
  if (!heads.some(({ name }) => name === next.beside)) next.beside = "";
  if (!(next.by in data.said.criteria)) next.by = START.by;
  store.set(next, true);
}
