import { headOf, itemOf, kindOf, page, weights } from "./data.js";
import { seriesColor } from "./colors.js";
import { MOST_BLENDED } from "./store.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").AxisData} AxisData */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Layer} Layer */
/** @typedef {import("./types.js").Panel} Panel */

/** Keep about so many weights ready for the next drawing. */
const MOST_CACHED = 12e6;

/**
 * One axis: tokens or words, those of one sentence of a pair or all, without what is hidden.
 * @param {AxisData} axis
 * @param {State} state
 * @param {string} segment `A`, `B`, or empty for both
 * @returns {Axis}
 */
function shownAxis(axis, state, segment) {
  const count = axis.labels.length;
  const starts = state.words ? axis.starts : axis.labels.map((_, i) => i);
  /** @type {Axis} */
  const out = { labels: [], inline: [], gaps: [], special: [], from: [], to: [], at: [] };
  starts.forEach((from, i) => {
    if (segment && axis.segments[from] !== (segment === "A" ? 0 : 1)) return;
    if (state.separators && axis.separators[from]) return;
    if (state.first && from === 0) return;
    const to = i + 1 < starts.length ? starts[i + 1] : count;
    out.labels.push(state.words ? axis.words[i] : axis.labels[from]);
    out.inline.push(state.words ? axis.words[i] : axis.inline[from]);
    out.gaps.push(Boolean(axis.gaps[from]));
    out.special.push(Boolean(axis.special[from]));
    out.from.push(from);
    out.to.push(to);
    out.at.push(i);
  });
  return out;
}

/** Whether the text is a pair of sentences. @param {State} state */
export function isPair(state) {
  const kind = kindOf(state);
  return kind.queries === kind.keys && itemOf(state).axes[kind.queries].segments.includes(1);
}

/** @type {{ key: string, queries: Axis, keys: Axis } | null} */
let axesNow = null;
/** @type {Map<string, Float32Array>} */
const cache = new Map();
let cached = 0;

/** @param {State} state */
export function axesOf(state) {
  const { text, words, separators, first, rescale } = state;
  const quad = isPair(state) && state.quad !== "all" ? state.quad : "";
  const key = JSON.stringify([text, kindOf(state).kind, words, separators, first, rescale, quad]);
  if (!axesNow || axesNow.key !== key) {
    const kind = kindOf(state);
    const { axes } = itemOf(state);
    const queries = shownAxis(axes[kind.queries], state, quad[0] || "");
    const same = kind.queries === kind.keys && quad[0] === quad[1];
    const keys = same ? queries : shownAxis(axes[kind.keys], state, quad[1] || "");
    axesNow = { key, queries, keys };
    cache.clear();
    cached = 0;
  }
  return axesNow;
}

/**
 * The weights of one head over the axes as shown: summed over the keys of a word, averaged over
 * its queries that have any weight, then cut, then rescaled if asked for.
 * @param {State} state
 * @param {Head} head
 */
export function matrix(state, head) {
  const { queries, keys } = axesOf(state);
  const kept = cache.get(head.id);
  if (kept) return kept;
  const kind = kindOf(state);
  const { axes } = itemOf(state);
  const [T, S] = [axes[kind.queries].labels.length, axes[kind.keys].labels.length];
  const base = weights(head.site, head.row, T, S);
  const [R, C] = [queries.at.length, keys.at.length];
  let out = base;
  if (state.words || R !== T || C !== S) {
    out = new Float32Array(R * C);
    for (let r = 0; r < R; r++) {
      let full = 0;
      for (let t = queries.from[r]; t < queries.to[r]; t++) {
        let any = false;
        for (let s = t * S; s < (t + 1) * S && !any; s++) any = base[s] > 0;
        if (!any) continue;
        full++;
        for (let c = 0; c < C; c++) {
          for (let s = keys.from[c]; s < keys.to[c]; s++) out[r * C + c] += base[t * S + s];
        }
      }
      if (full > 1) for (let i = r * C; i < (r + 1) * C; i++) out[i] /= full;
    }
  }
  if (state.rescale) {
    for (let r = 0; r < R; r++) {
      let sum = 0;
      for (let i = r * C; i < (r + 1) * C; i++) sum += out[i];
      if (sum > 0) for (let i = r * C; i < (r + 1) * C; i++) out[i] /= sum;
    }
  }
  if (cached + out.length > MOST_CACHED) {
    cache.clear();
    cached = 0;
  }
  cache.set(head.id, out);
  cached += out.length;
  return out;
}

/**
 * @param {string} name
 * @param {string} color
 * @param {Float32Array} data
 * @param {number} R
 * @param {number} C
 * @param {boolean} whole whether rows sum to 1, but for the rounding of single weights
 * @returns {Layer}
 */
function layer(name, color, data, R, C, whole) {
  const rowTops = new Float32Array(R);
  let top = 0;
  for (let r = 0; r < R; r++) {
    let most = 0;
    for (let i = r * C; i < (r + 1) * C; i++) if (data[i] > most) most = data[i];
    rowTops[r] = most;
    if (most > top) top = most;
  }
  return { name, color, data, top, rowTops, whole };
}

/**
 * @param {State} state
 * @param {string[]} ids
 * @returns {Panel}
 */
export function panelOf(state, ids) {
  const { queries, keys } = axesOf(state);
  const [R, C] = [queries.at.length, keys.at.length];
  const heads = ids.flatMap((id) => headOf(state, id) || []);
  const mixed = mixOf(state, heads.length);
  const kind = kindOf(state);
  const { axes } = itemOf(state);
  const cut = !state.words
    ? R < axes[kind.queries].labels.length || C < axes[kind.keys].labels.length
    : R < axes[kind.queries].starts.length || C < axes[kind.keys].starts.length;
  /** @param {Head} head */
  const whole = (head) => head.data.whole && (!cut || state.rescale);
  /** @type {Layer[]} */
  let layers;
  if (mixed === "mean" || mixed === "max") {
    const data = new Float32Array(R * C);
    for (const head of heads) {
      const one = matrix(state, head);
      if (mixed === "mean") for (let i = 0; i < data.length; i++) data[i] += one[i] / heads.length;
      else for (let i = 0; i < data.length; i++) if (one[i] > data[i]) data[i] = one[i];
    }
    layers = [layer(`${mixed} of ${heads.length} heads`, seriesColor(0), data, R, C, mixed === "mean" && heads.every(whole))];
  } else {
    layers = heads.map((head, i) => layer(`head ${head.id}`, seriesColor(i), matrix(state, head), R, C, whole(head)));
  }
  return { queries, keys, R, C, layers, mixed, cut, rescaled: state.rescale };
}

/**
 * How several heads are shown: `single` for one, and no blend of more than can be told apart.
 * @param {State} state
 * @param {number} count
 */
export function mixOf(state, count) {
  if (count === 1) return "single";
  return state.mix === "blend" && count > MOST_BLENDED ? "mean" : state.mix;
}

/**
 * What must be said about the weights shown.
 * @param {Panel} panel
 * @param {State} state
 */
export function saidOf(panel, state) {
  const said = [];
  if (panel.mixed === "mean" && state.mix === "blend") {
    said.push(`More than ${MOST_BLENDED} heads are on: their mean is shown, since so many colours cannot be told apart.`);
  }
  if (panel.mixed === "max") said.push("The largest weight of any head that is on; rows can sum to more than 1.");
  if (state.words) said.push("Words: summed over a word's keys, averaged over its queries.");
  if (panel.cut && panel.rescaled) {
    said.push("Some tokens are hidden, and each row is rescaled: divided by its sum over the keys shown.");
  } else if (panel.cut) {
    said.push("Some tokens are hidden; the weights are as they were, so rows can sum to less than 1.");
  } else if (panel.rescaled) said.push("Each row is rescaled: divided by its sum.");
  const empty = itemOf(state).emptyRows;
  if (empty) said.push(`${empty} query row${empty > 1 ? "s have" : " has"} no key to attend to: all zero.`);
  return said;
}

/**
 * Where a pinned token is on the axes shown, or -1.
 * @param {Axis} axis
 * @param {string} pin
 * @param {string} side `q` or `k`
 */
export function pinned(axis, pin, side) {
  if (pin[0] !== side) return -1;
  const token = Number(pin.slice(1));
  return axis.from.findIndex((from, i) => from <= token && token < axis.to[i]);
}

/**
 * Which entries match what is searched for.
 * @param {Axis} axis
 * @param {string} find
 */
export function matches(axis, find) {
  const wanted = find.trim().toLowerCase();
  if (!wanted) return [];
  return axis.labels.flatMap((label, i) => (label.toLowerCase().includes(wanted) ? [i] : []));
}

/** The weights' precision, in words. */
export function precision() {
  return `weights in ${page.bits} bits, off by at most ${page.error.toExponential(0)}`;
}

/**
 * The numbers of a panel, a line a pair of query and key.
 * @param {State} state
 * @returns {string[][]}
 */
export function pairsTable(state) {
  const panel = panelOf(state, state.on);
  const lines = [["query_index", "query", "key_index", "key", ...panel.layers.map(({ name }) => name)]];
  for (let r = 0; r < panel.R; r++) {
    for (let c = 0; c < panel.C; c++) {
      const numbers = panel.layers.map(({ data }) => String(Number(data[r * panel.C + c].toPrecision(6))));
      const { queries, keys } = panel;
      lines.push([String(queries.at[r]), queries.labels[r], String(keys.at[c]), keys.labels[c], ...numbers]);
    }
  }
  return lines;
}
