import { byId } from "./dom.js";
import { observed, setAddress } from "./observed.js";

/** @typedef {import("./types.js").State} State */

/** @type {import("./types.js").Page} */
export const page = JSON.parse(byId("data").textContent || "");

const heads = new Set(page.heads.map(({ id }) => id));

/** @returns {State} */
function start() {
  return { text: page.text, off: new Set(page.off), head: page.head, at: page.opening?.answer === null ? page.opening.at : null, temperature: 0, topK: 0, topP: 1, seed: 0, why: null, key: null, lesson: "", step: -1, told: -1, places: true, other: null, divisor: null, noise: 0, bug: "" };
}

/**
 * What a step of a lesson shows; what it changes comes with the answer, where it asks something.
 * @param {string} lesson
 * @param {number} step
 * @param {number} told the answer that was chosen, or -1
 * @returns {Partial<State>}
 */
export function shownAt(lesson, step, told) {
  const found = page.lessons.find(({ name }) => name === lesson)?.steps[step];
  if (!found) return {};
  const { text, head, at, key, bug } = found;
  const open = !found.ask || told >= 0;
  return {
    lesson, step, told, text, head, at, key, bug, why: null,
    off: new Set(open ? found.off : []), places: !open || found.places,
    other: open ? found.other : null, divisor: open ? found.divisor : null, noise: open ? found.noise : 0,
  };
}

/** In what the second pass differs from the first. @param {State} state */
export function changesOf({ off, places, other, bug }) {
  return [bug ? "a bug in layer 0" : "", off.size ? "heads off" : "", places ? "" : "positions off", other === null ? "" : "another text"].filter(Boolean).join(" and ");
}

/** What a state asks of the network, to tell answers apart. @param {State} state */
export function askedFor({ text, off, at, head, places, other, bug }) {
  return [text, [...off].sort(), at, head, places, other, bug].join("\n");
}

/** @param {State[keyof State]} value */
function plain(value) {
  return value instanceof Set ? [...value].sort().join() : String(value);
}

const store = observed(start(), queueMicrotask, plain);

export const get = store.get;
export const subscribe = store.subscribe;

/** Change some of the state; who listens hears of it once, before the next picture. @param {Partial<State>} patch */
export function set(patch) {
  store.set({ ...get(), ...patch });
}

subscribe(remember);

/** Switch heads off or on again. @param {string[]} ids @param {boolean} off */
export function turnOff(ids, off) {
  const now = new Set(get().off);
  for (const id of ids) off ? now.add(id) : now.delete(id);
  set({ off: now });
}

/** @type {number | undefined} */
let remembering;

/** The address holds what is seen, so that a link shows it again. */
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(flush, 200);
}

/** Write the address now. */
export function flush() {
  clearTimeout(remembering);
  const state = get();
  const parts = new URLSearchParams();
  const usual = { ...start(), ...shownAt(state.lesson, state.step, state.told) };
  if (state.step >= 0) {
    parts.set("lesson", state.lesson);
    parts.set("step", String(state.step + 1));
    if (state.told >= 0) parts.set("told", String(state.told + 1));
  }
  for (const name of /** @type {const} */ (["text", "off", "head", "at", "why", "temperature", "topK", "topP", "seed", "divisor", "noise"])) {
    if (plain(state[name]) !== plain(usual[name])) parts.set(name, state[name] === null ? "" : plain(state[name]));
  }
  if (state.places !== usual.places) parts.set("places", state.places ? "on" : "off");
  setAddress(`#${parts}`);
}

/** A seed, if it is one of 32 bits. @param {string | null} text */
export function seedFrom(text) {
  return text && /^\d{1,10}$/.test(text) && Number(text) < 2 ** 32 ? Number(text) : null;
}

/** Of how many tokens one is drawn; 0, all of them, for what is no such number. @param {string | null} text */
export function topKFrom(text) {
  return text && /^\d{1,6}$/.test(text) ? Number(text) : 0;
}

/** Of how much probability one is drawn; 1 for what is none. @param {string | null} text */
export function topPFrom(text) {
  return Number(text) > 0 && Number(text) < 1 ? Number(text) : 1;
}

/** Take over what the address says; entries that make no sense are left out. */
export function fromHash() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const lesson = parts.get("lesson") || "";
  const [step, told] = ["step", "told"].map((name) => (/^\d+$/.test(parts.get(name) || "") ? Number(parts.get(name)) - 1 : -1));
  const usual = { ...start(), ...shownAt(lesson, step, told) };
  const head = parts.get("head") || "";
  const [temperature, divisor, noise] = ["temperature", "divisor", "noise"].map((name) => Number(parts.get(name)));
  /** A place in the text. @param {"at" | "why"} name */
  const place = (name) => (/^\d+$/.test(parts.get(name) || "") ? Number(parts.get(name)) : parts.has(name) ? null : usual[name]);
  set({
    ...usual,
    text: parts.get("text") ?? usual.text,
    off: parts.has("off") ? new Set((parts.get("off") || "").split(",").filter((id) => heads.has(id))) : usual.off,
    head: heads.has(head) ? head : usual.head,
    at: place("at"),
    why: place("why"),
    temperature: temperature >= 0 && temperature <= 1.5 ? temperature : 0,
    topK: topKFrom(parts.get("topK")),
    topP: topPFrom(parts.get("topP")),
    seed: seedFrom(parts.get("seed")) ?? 0,
    places: parts.has("places") ? parts.get("places") !== "off" : usual.places,
    divisor: divisor > 0 ? divisor : usual.divisor,
    noise: parts.has("noise") && noise >= 0 && noise <= 1 ? noise : usual.noise,
  });
}
