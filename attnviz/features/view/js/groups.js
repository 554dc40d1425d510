import { headsOf, kindOf, page, roleOf, signOf } from "./data.js";
import { measureOf, valueOf } from "./tints.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
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
      ...(known.length ? [{ title: `${measure.title}, the largest first (${known.length})`, color: "", heads: lined(known, across) }] : []),
      ...(others.length ? [{ title: `not measured (${others.length})`, color: "", heads: lined(others, across) }] : []),
    ];
  }
  const names = [...page.roles.map(({ name }) => name), ""];
  return names.flatMap((name) => {
    const some = heads.filter((head) => signOf(head) === name);
    if (!some.length) return [];
    some.sort((a, b) => strength(b, name) - strength(a, name));
    return [{ title: `${name || "no role"} (${some.length})`, color: roleOf.get(name)?.color || "", heads: lined(some, across) }];
  });
}

/** @param {Head} head @param {string} name of a role */
function strength(head, name) {
  return head.data.roles.find((one) => one.name === name)?.numbers[0] || 0;
}

/** @param {Head[]} heads @param {number} across */
function lined(heads, across) {
  const lines = [];
  for (let i = 0; i < heads.length; i += across) lines.push(heads.slice(i, i + across));
  return lines;
}
