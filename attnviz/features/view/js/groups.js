import { headsOf, isFolded, kindOf, page, roleOf, signOf } from "./data.js";
import { thousands } from "./numbers.js";
import { measureOf, valueOf } from "./tints.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** Lines of a role, and of a whole model by layer, where only the strongest heads are shown. */
const [FIRST, LAYERS] = [2, 32];

/** @typedef {{ title: string, color: string, heads: (Head | null)[][] }} Group lines of tiles under one title */

/**
 * The lines of tiles: layers as the model has them, the heads of each role, strongest first, or all
 * heads by the number that tints them.
 * @param {State} state
 * @param {number} across how many tiles fit beside each other, for roles
 * @returns {Group[]}
 */
export function groupsOf(state, across) {
  const heads = headsOf(state);
  const folded = isFolded(state);
  if (state.sort === "model" && folded) return layersOf(state, heads, across);
  if (state.sort === "model") {
    const widest = Math.max(...heads.map(({ data }) => data.index)) + 1;
    return kindOf(state).sites.map((site) => {
      /** @type {(Head | null)[]} */
      const line = Array(widest).fill(null);
      for (const head of heads) if (head.site === site) line[head.data.index] = head;
      return { title: String(site.layer), color: "", heads: [line] };
    });
  }
  const measure = measureOf(state);
  if (state.sort === "value" && measure) {
    /** @param {Head} head */
    const value = ({ id }) => valueOf(measure, state, id)?.[0] ?? null;
    const known = heads.filter((head) => value(head) !== null).sort((a, b) => Number(value(b)) - Number(value(a)));
    const others = heads.filter((head) => value(head) === null);
    return [
      ...(known.length ? [lined(`${measure.title}, the largest first`, "", known, across, folded ? 4 * FIRST : 0)] : []),
      ...(others.length ? [lined("not measured", "", others, across, Number(folded))] : []),
    ];
  }
  const names = [...page.roles.map(({ name }) => name), ""];
  return names.flatMap((name) => {
    const some = heads.filter((head) => signOf(head) === name);
    if (!some.length) return [];
    some.sort((a, b) => strength(b, name) - strength(a, name));
    return [lined(name || "no role", roleOf.get(name)?.color || "", some, across, folded ? (name ? FIRST : 1) : 0)];
  });
}

/** @param {Head} head @param {string} name of a role */
function strength(head, name) {
  return head.data.roles.find((one) => one.name === name)?.numbers[0] || 0;
}

/**
 * @param {string} name
 * @param {string} color
 * @param {Head[]} heads in order
 * @param {number} across
 * @param {number} most lines; 0 for all
 * @returns {Group}
 */
function lined(name, color, heads, across, most) {
  const lines = [];
  for (let i = 0; i < heads.length && (!most || lines.length < most); i += across) lines.push(heads.slice(i, i + across));
  const shown = Math.min(lines.length * across, heads.length);
  const count = shown < heads.length ? `${shown} of ${thousands(heads.length)}` : thousands(heads.length);
  return { title: `${name} (${count})`, color, heads: lines };
}

/**
 * The strongest of some heads, the first of them first: by the number that tints them, else those
 * that do something before those that only rest.
 * @param {State} state
 * @param {Head[]} heads
 * @param {number} most
 */
export function strongest(state, heads, most) {
  const measure = measureOf(state);
  /** @param {Head} head */
  const order = ({ id, data }) => {
    const [role] = data.roles;
    if (measure) return Math.abs(Number(valueOf(measure, state, id)?.[0] ?? -1));
    return role ? Number(!role.rests) + Number(role.numbers[0]) : -1;
  };
  const sorted = heads.map((head) => ({ head, at: order(head) })).sort((a, b) => b.at - a.at);
  return sorted.slice(0, most).map(({ head }) => head);
}

/**
 * A line for every few layers, with their strongest heads.
 * @param {State} state
 * @param {Head[]} heads
 * @param {number} across
 * @returns {Group[]}
 */
function layersOf(state, heads, across) {
  const { sites } = kindOf(state);
  const each = Math.ceil(sites.length / LAYERS);
  return Array.from({ length: Math.ceil(sites.length / each) }, (_, line) => {
    const some = sites.slice(line * each, (line + 1) * each);
    const title = some.length > 1 ? `${some[0].layer}–${some[some.length - 1].layer}` : String(some[0].layer);
    return { title, color: "", heads: [strongest(state, heads.filter(({ site }) => some.includes(site)), across)] };
  });
}
