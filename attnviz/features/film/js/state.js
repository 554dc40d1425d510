import { count, data } from "./data.js";
import { observed, setAddress } from "./observed.js";

/** What the page shows, as its address holds it: `#step=400&head=1.0`. @typedef {{ step: number, head: number }} State */

/** @returns {State} */
function start() {
  return { step: count - 1, head: data.first };
}

const store = observed(start());

export const get = store.get;
export const subscribe = store.subscribe;

/** @param {Partial<State>} patch */
export function set(patch) {
  const state = { ...get(), ...patch };
  const first = start();
  const parts = new URLSearchParams();
  if (state.step !== first.step) parts.set("step", String(data.steps[state.step]));
  if (state.head !== first.head) parts.set("head", data.heads[state.head].name);
  setAddress(parts.size ? `#${parts}` : "");
  store.set(state, true);
}

/** Take over what the address says. */
export function fromHash() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const step = data.steps.indexOf(Number(parts.get("step") ?? NaN));
  const head = data.heads.findIndex(({ name }) => name === parts.get("head"));
  const first = start();
  store.set({ step: step < 0 ? first.step : step, head: head < 0 ? first.head : head }, true);
}
