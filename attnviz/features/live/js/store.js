import { byId } from "./dom.js";

/** @typedef {import("./types.js").State} State */

/** @type {import("./types.js").Page} */
export const page = JSON.parse(byId("data").textContent || "");

const heads = new Set(page.heads.map(({ id }) => id));

/** @type {State} */
let state = start();
/** @type {((state: State, changed: Set<keyof State>) => void)[]} */
const listeners = [];
/** @type {Set<keyof State>} */
let changed = new Set();

/** @returns {State} */
function start() {
  return { text: page.text, off: new Set(page.off), head: page.opening, at: null, temperature: 0, seed: 0, step: -1, why: null, key: null };
}

export function get() {
  return state;
}

/** @param {(state: State, changed: Set<keyof State>) => void} listener */
export function subscribe(listener) {
  listeners.push(listener);
}

/** @param {State[keyof State]} value */
function plain(value) {
  return value instanceof Set ? [...value].sort().join() : String(value);
}

/**
 * Change some of the state; who listens hears of it once, before the next picture.
 * @param {Partial<State>} patch
 */
export function set(patch) {
  const next = { ...state, ...patch };
  const before = changed.size;
  for (const name of /** @type {(keyof State)[]} */ (Object.keys(next))) {
    if (plain(next[name]) !== plain(state[name])) changed.add(name);
  }
  state = next;
  if (changed.size && !before) {
    queueMicrotask(() => {
      const what = changed;
      changed = new Set();
      for (const listener of listeners) listener(state, what);
      remember();
    });
  }
}

/** Switch heads off or on again. @param {string[]} ids @param {boolean} off */
export function turnOff(ids, off) {
  const now = new Set(state.off);
  for (const id of ids) off ? now.add(id) : now.delete(id);
  set({ off: now });
}

/** @type {number | undefined} */
let remembering;

/** The address holds what is seen, so that a link shows it again. */
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const parts = new URLSearchParams();
    if (state.step >= 0) parts.set("step", String(state.step));
    if (state.text !== page.text) parts.set("text", state.text);
    if ([...state.off].join() !== page.off.join()) parts.set("off", [...state.off].join());
    if (state.head !== page.opening) parts.set("head", state.head);
    if (state.at !== null) parts.set("at", String(state.at));
    if (state.why !== null) parts.set("why", String(state.why));
    if (state.temperature) parts.set("temperature", String(state.temperature));
    if (state.seed) parts.set("seed", String(state.seed));
    try {
      history.replaceState(null, "", `#${parts}`);
    } catch {
      // a notebook's frame has no address of its own
    }
  }, 200);
}

/** A seed, if it is one of 32 bits. @param {string | null} text */
export function seedFrom(text) {
  return text && /^\d{1,10}$/.test(text) && Number(text) < 2 ** 32 ? Number(text) : null;
}

/** Take over what the address says; entries that make no sense are left out. */
export function fromHash() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const [head, at, why, temperature] = [parts.get("head") || "", parts.get("at"), parts.get("why"), Number(parts.get("temperature"))];
  set({
    ...start(),
    step: Number(parts.get("step") ?? -1) in page.tour ? Number(parts.get("step")) : -1,
    text: parts.get("text") ?? page.text,
    off: new Set((parts.get("off") ?? page.off.join()).split(",").filter((id) => heads.has(id))),
    head: heads.has(head) ? head : start().head,
    at: at !== null && /^\d+$/.test(at) ? Number(at) : null,
    why: why !== null && /^\d+$/.test(why) ? Number(why) : null,
    temperature: temperature >= 0 && temperature <= 1.5 ? temperature : 0,
    seed: seedFrom(parts.get("seed")) ?? 0,
  });
}
