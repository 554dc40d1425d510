import { count, data } from "./data.js";

/** What the page shows, as its address holds it: `#step=400&head=1.0`. @typedef {{ step: number, head: number }} State */

/** @returns {State} */
function start() {
  return { step: count - 1, head: data.formed.length ? data.formed[0].head : 0 };
}

let state = start();
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
  state = { ...state, ...patch };
  const first = start();
  const parts = new URLSearchParams();
  if (state.step !== first.step) parts.set("step", String(data.steps[state.step]));
  if (state.head !== first.head) parts.set("head", data.heads[state.head].name);
  try {
    history.replaceState(null, "", `#${parts}`);
  } catch {
    // a notebook's frame has no address of its own
  }
  tell();
}

function tell() {
  for (const listener of listeners) listener(state);
}

/** Take over what the address says. */
export function fromHash() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const step = data.steps.indexOf(Number(parts.get("step") ?? NaN));
  const head = data.heads.findIndex(({ name }) => name === parts.get("head"));
  const first = start();
  state = { step: step < 0 ? first.step : step, head: head < 0 ? first.head : head };
  tell();
}
