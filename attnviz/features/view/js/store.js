import { headsOf, kindOf, MANY, page, sceneOf } from "./data.js";
import { observed, setAddress } from "./observed.js";
import { readBeside, SHOWN } from "./second.js";

/** @typedef {import("./types.js").State} State */

export const VIEWS = ["stage", "overview", "map", "lines", "text", "scene", "card"];
/** What stands together on the stage; where there is no room beside, one below the other. */
const STAGE = ["text", "map", "overview"];
export const SORTS = /** @type {const} */ (["model", "role", "likeness", "value"]);
export const MIXES = ["blend", "mean", "max"];
export const QUADRANTS = ["all", "AA", "AB", "BA", "BB"];
export const MOST_ZOOM = 64;
/** Blended colours can be told apart up to so many heads; beyond, their mean is shown. */
export const MOST_BLENDED = 8;

/** Very many heads open by role, the strongest of each first. */
const many = page.items.some(({ kinds }) => kinds.some(({ sites }) => sites.reduce((sum, { heads }) => sum + heads.length, 0) > MANY));

/** @type {State} */
const DEFAULTS = {
  view: page.against ? "map" : "stage", text: 0, kind: "", writes: page.items.some(({ written }) => written.length), head: "", on: [], mix: "blend", every: false, sort: many ? "role" : "model", tint: page.measures[0]?.key || "role",
  words: false, separators: false, first: false, rescale: false, quad: "all",
  scale: "map", palette: page.palette, theme: "system", top: 5, least: 0.05, toward: false, letters: true,
  pin: "", who: "", why: "", spans: "", find: "", zoom: "", beside: "", sides: "all", most: page.against,
};

/** What each entry of a link may be. @type {Record<string, (value: string) => boolean>} */
const ALLOWED = {
  view: (value) => VIEWS.includes(value),
  kind: () => true,
  head: (value) => /^\d+\.\d+$/.test(value),
  mix: (value) => MIXES.includes(value),
  sort: (value) => SORTS.some((sort) => sort === value),
  tint: (value) => value === "role" || value === "sink" || page.measures.some(({ key }) => key === value),
  quad: (value) => QUADRANTS.includes(value),
  scale: (value) => ["map", "row", "one"].includes(value),
  palette: (value) => value === "auto" || Object.hasOwn(page.palettes, value),
  theme: (value) => ["system", "light", "dark"].includes(value),
  pin: (value) => /^[qk]\d+$/.test(value),
  who: (value) => /^(q\d+)?(k\d+)?$/.test(value),
  why: (value) => /^q\d+k\d+$/.test(value),
  spans: (value) => /^(s\d+|\d+-\d+)(\.(s\d+|\d+-\d+))?$/.test(value),
  find: () => true,
  sides: (value) => SHOWN.includes(value),
  beside: (value) => value === "none" || (/^(\d+\.\d+(@\d+)?|@\d+)$/.test(value) && Number(readBeside(value).text) < page.items.length),
  zoom: (value) => /^\d+(\.\d+)?,\d+(\.\d+)?,\d+(\.\d+)?$/.test(value) && Number.parseFloat(value) > 1 && Number.parseFloat(value) <= MOST_ZOOM,
};

/** All that changes before the next frame is drawn in it. @param {() => void} tell */
function nextFrame(tell) {
  document.documentElement.dataset.pending = "1";
  requestAnimationFrame(() => {
    delete document.documentElement.dataset.pending;
    tell();
    remember();
  });
}

const store = observed({ ...DEFAULTS }, nextFrame);
export const get = store.get;
export const subscribe = store.subscribe;

/** Change some of the state; everything that shows it is drawn in the next frame. @param {Partial<State>} patch */
export function set(patch) {
  store.set(settled({ ...get(), ...patch }));
}

/** The views there are: a text is read, a picture or a sound is looked over. @param {State} state */
export function viewsOf(state) {
  const others = sceneOf(state) ? ["text", "stage"] : ["scene"];
  return VIEWS.filter((view) => !others.includes(view));
}

/** The views that are drawn: of the stage all of its parts. @param {State} state */
export function drawn(state) {
  if (state.view !== "stage") return [state.view];
  return STAGE;
}

/** Whether a view is drawn. @param {State} state @param {string} view */
export function shows(state, view) {
  return drawn(state).includes(view);
}

/** The token that the stage opens with: where its first head shows best what it does. @param {State} state */
function firstPin(state) {
  const { see, queries } = kindOf(state);
  const count = page.items[state.text].axes[queries].labels.length;
  return `q${see?.pair ? see.pair[0] : count - 1}`;
}

/**
 * What cannot be is put right: a kind or head that this text does not have, no head at all.
 * @param {State} next
 * @param {State} [state] the one before
 * @returns {State}
 */
function settled(next, state = get()) {
  next.text = Math.min(Math.max(next.text, 0), page.items.length - 1);
  const { kinds } = page.items[next.text];
  if (!kinds.some(({ kind }) => kind === next.kind)) next.kind = kinds[0].kind;
  const moved = next.text !== state.text || next.kind !== state.kind;
  if (moved) Object.assign(next, { pin: "", who: "", why: "", spans: "", zoom: "" });
  // a text is not compared with itself, but with the one that was there
  if (next.beside === `@${next.text}`) next.beside = next.text === state.text ? "" : `@${state.text}`;
  if (next.words !== state.words || next.quad !== state.quad) next.zoom = "";
  if (!sortsOf(next).some((sort) => sort === next.sort)) next.sort = "model";
  if (!viewsOf(next).includes(next.view)) next.view = sceneOf(next) ? "scene" : "text";
  const heads = headsOf(next);
  const known = new Set(heads.map(({ id }) => id));
  const on = new Set(next.on.filter((id) => known.has(id)));
  if (!known.has(next.head)) next.head = [...on][0] || kindOf(next).opening || heads[0].id;
  if (!on.size) on.add(next.head);
  next.on = heads.filter(({ id }) => on.has(id)).map(({ id }) => id);
  // nothing opens blank
  if (next.view === "stage" && !next.pin && (moved || !visited)) next.pin = firstPin(next);
  return next;
}

/** The ways that heads can stand now. @param {State} now */
export function sortsOf(now) {
  return SORTS.filter((sort) => (sort !== "likeness" || kindOf(now).alike !== null) && (sort !== "value" || now.tint !== "role"));
}

/** Turn a head on or off; one stays on. @param {string} id */
export function toggle(id) {
  const { on } = get();
  set({ head: id, on: on.includes(id) ? (on.length > 1 ? on.filter((one) => one !== id) : on) : [...on, id] });
}

/** The state as a link carries it: only what differs from the start. */
export function asHash() {
  const state = get();
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (name === "on") parts.set(name, shortened());
    else if (name === "kind" && page.items[state.text].kinds.length === 1) continue;
    else if (String(value) !== String(/** @type {any} */ (DEFAULTS)[name])) {
      parts.set(name, typeof value === "boolean" ? String(Number(value)) : String(value));
    }
  }
  return `#${parts}`;
}

/** The heads that are on; whole layers as `3.*`, all of them as `*`. */
function shortened() {
  const state = get();
  const heads = headsOf(state);
  if (state.on.length === heads.length && heads.length > 1) return "*";
  /** @type {Map<number, string[]>} */
  const layers = new Map();
  for (const id of state.on) {
    const layer = Number.parseInt(id, 10);
    layers.set(layer, [...(layers.get(layer) || []), id]);
  }
  return [...layers].flatMap(([layer, ids]) => {
    const whole = heads.filter(({ site }) => site.layer === layer).length;
    return whole === ids.length && whole > 1 ? [`${layer}.*`] : ids;
  }).join(",");
}

/** Take over what the address says; entries that make no sense are left out. */
export function fromHash() {
  const parts = new URLSearchParams(location.hash.slice(1));
  /** @type {any} */
  const next = { ...DEFAULTS };
  for (const [name, value] of parts) {
    if (!Object.hasOwn(DEFAULTS, name)) continue;
    const usual = /** @type {any} */ (DEFAULTS)[name];
    if (typeof usual === "boolean") next[name] = value === "1";
    else if (typeof usual === "number") {
      if (Number.isFinite(Number(value)) && Number(value) >= 0) next[name] = Number(value);
    } else if (name !== "on" && ALLOWED[name](value)) next[name] = value;
  }
  next.text = Math.min(Math.trunc(next.text), page.items.length - 1);
  next.top = Math.max(1, Math.trunc(next.top));
  const kinds = page.items[next.text].kinds;
  if (!kinds.some(({ kind }) => kind === next.kind)) next.kind = kinds[0].kind;
  const wanted = (parts.get("on") || "").split(",");
  next.on = headsOf(next)
    .filter(({ id, site }) => wanted.includes("*") || wanted.includes(`${site.layer}.*`) || wanted.includes(id))
    .map(({ id }) => id);
  const { pin, who, why, spans, zoom } = next;
  visited = "";
  const before = { ...get(), text: next.text, kind: next.kind, writes: next.writes, words: next.words, quad: next.quad };
  store.set(settled({ ...next, pin, who, why, spans, zoom }, before), true);
  visited = place();
}

/** What the browser's Back goes back over: another view, head or text. */
function place() {
  const { view, text, kind, head } = get();
  return JSON.stringify([view, text, kind, head]);
}

let visited = "";

/** @type {number | undefined} */
let remembering;

/** Put the state into the address, once things have settled: browsers allow this only so often. */
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const moved = place() !== visited;
    visited = place();
    setAddress(asHash(), moved);
  }, 150);
}
