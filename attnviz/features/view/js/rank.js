import { headsOf, isLoaded, itemOf, kindOf, rowWeights } from "./data.js";
import { decimalsOf, known, toDecimals } from "./numbers.js";
import { axesOf, pinned, rescaled } from "./panel.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/**
 * A head's weight on the pair that was asked about, as a part of the largest (`part`), and in words
 * with its share of all heads' weight there; `low` and `high` bound it.
 * @typedef {{ head: Head, value: number, low: number, high: number, part: number, weight: string, share: string }} Ranked
 */

/** Significant digits of the largest weight. */
const DIGITS = 3;

/** The two tokens of a question such as `q3k1`; one of them is enough. @param {string} who */
function read(who) {
  const [, query = "", key = ""] = /^(q\d+)?(k\d+)?$/.exec(who) || [];
  return { query, key };
}

/** Whether a pair of tokens is asked about, not a single one. @param {State} state */
export function asksPair(state) {
  const { query, key } = read(state.who);
  return Boolean(query && key);
}

/**
 * A question with one token more.
 * @param {string} who
 * @param {string} side `q` or `k`
 * @param {number} token
 * @param {boolean} either whether the token can be on both sides: it goes to the one that is free
 */
export function withToken(who, side, token, either) {
  const now = read(who);
  const [one, both] = [Boolean(now.query) !== Boolean(now.key), Boolean(now.query && now.key)];
  const to = either && one ? (now.query ? "k" : "q") : side;
  if (either && both) return `${to}${token}`;
  return to === "q" ? `q${token}${now.key}` : `${now.query}k${token}`;
}

/**
 * Where the tokens asked about are on the axes shown, or -1; a single one is on both where they are
 * the same. Null where nothing is asked.
 * @param {State} state
 */
export function askedOf(state) {
  const { query, key } = read(state.who);
  if (!query && !key) return null;
  const { queries, keys } = axesOf(state);
  const [r, c] = [query ? pinned(queries, query, "q") : -1, key ? pinned(keys, key, "k") : -1];
  if (query && key) return { r, c, pair: r >= 0 && c >= 0 };
  const i = Math.max(r, c);
  return queries === keys ? { r: i, c: i, pair: false } : { r, c, pair: false };
}

/**
 * What one head shows on a pair, as {@link matrix} has it, from the rows that it takes alone.
 * @param {State} state
 * @param {Head} head
 * @param {number} r
 * @param {number} c
 * @param {number} shift
 */
function cell(state, head, r, c, shift) {
  const { queries, keys } = axesOf(state);
  const S = itemOf(state).axes[kindOf(state).keys].labels.length;
  /** @param {number} side */
  const row = (side) => {
    const out = new Float32Array(keys.at.length);
    let count = 0;
    for (let t = queries.from[r]; t < queries.to[r]; t++) {
      if (queries.to[r] - queries.from[r] > 1 && !rowWeights(head.site, head.row, t, S).some((weight) => weight > 0)) continue;
      count++;
      const weights = rowWeights(head.site, head.row, t, S, side);
      for (let i = 0; i < out.length; i++) for (let s = keys.from[i]; s < keys.to[i]; s++) out[i] += weights[s];
    }
    if (count > 1) for (let i = 0; i < out.length; i++) out[i] /= count;
    return out;
  };
  const data = row(shift);
  return (state.rescale ? rescaled(data, shift ? row(-shift) : data, data.length) : data)[c];
}

/** @type {{ key: string, ranked: Ranked[] } | null} */
let kept = null;

/**
 * Every head by its weight on the pair that is asked about, the largest first; null where no pair
 * is, or where layers are not unpacked yet.
 * @param {State} state
 */
export function ranking(state) {
  const asked = askedOf(state);
  const heads = headsOf(state);
  if (!asked?.pair || !heads.every(({ site }) => isLoaded(site))) return null;
  const { text, kind, writes, words, separators, first, rescale, quad, who } = state;
  const key = JSON.stringify([text, kind, writes, words, separators, first, rescale, quad, who]);
  if (kept?.key !== key) kept = { key, ranked: ranked(state, heads, asked.r, asked.c) };
  return kept.ranked;
}

/** @param {State} state @param {Head[]} heads @param {number} r @param {number} c @returns {Ranked[]} */
function ranked(state, heads, r, c) {
  const found = heads.map((head) => {
    const [low, value, high] = [-0.5, 0, 0.5].map((shift) => cell(state, head, r, c, shift));
    return { head, low, value, high };
  });
  found.sort((a, b) => b.value - a.value);
  const [least, most] = [found.reduce((sum, { low }) => sum + low, 0), found.reduce((sum, { high }) => sum + high, 0)];
  const top = found[0].value;
  // all to the same decimals, so that the order of the numbers is theirs
  const decimals = decimalsOf(top || 1, DIGITS);
  return found.map(({ head, low, value, high }) => ({
    head, value, low, high, part: top > 0 ? value / top : 0, weight: toDecimals(low, value, high, decimals),
    share: `${high > 0 ? known((100 * low) / (low + most - high || 1), (100 * high) / (high + least - low), 2) : 0} %`,
  }));
}
