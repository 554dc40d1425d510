import { allowedIn, headOf, isLoaded, itemOf, kindOf, otherOf, page, several, unselectedIn, weights } from "./data.js";
import { decimalsOf, known, knownChange, shortened, upward, withError } from "./numbers.js";
import { seriesColor } from "./colors.js";
import { MASKED, maskedText } from "./masked.js";
import { MOST_BLENDED } from "./store.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").AxisData} AxisData */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Layer} Layer */
/** @typedef {import("./types.js").Panel} Panel */

/** Keep about so many weights ready for the next drawing. */
const MOST_CACHED = 30e6;
/** Both sides of a comparison, and what they were before. */
const MOST_AXES = 4;
/** Which cells are masked is kept for so many layers. */
const MOST_MASKS = 64;

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
  const out = { labels: [], named: [], spoken: [], inline: [], gaps: [], special: [], rows: [], written: [], from: [], to: [], at: [] };
  starts.forEach((from, i) => {
    if (segment && axis.segments[from] !== (segment === "A" ? 0 : 1)) return;
    if (state.separators && axis.separators[from]) return;
    if (state.first && from === 0) return;
    const to = i + 1 < starts.length ? starts[i + 1] : count;
    out.labels.push(state.words ? axis.words[i] : axis.labels[from]);
    out.inline.push(state.words ? axis.words[i] : axis.inline[from]);
    out.gaps.push(Boolean(axis.gaps[from]));
    out.special.push(Boolean(axis.special[from]));
    const label = out.labels[out.labels.length - 1];
    const next = state.words ? axis.words[i + 1] : axis.labels[to];
    out.rows.push(to < count && to >= count - axis.written ? `${label} → ${next}` : label);
    out.written.push(from >= count - axis.written);
    out.from.push(from);
    out.to.push(to);
    out.at.push(i);
  });
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const label of out.labels) counts.set(label, (counts.get(label) || 0) + 1);
  out.labels.forEach((label, i) => {
    const more = /** @type {number} */ (counts.get(label)) > 1 ? ` (${out.at[i]})` : "";
    out.named.push(label + more);
    out.spoken.push((label.replace(/^·+(?=[^·])|(?<=[^·])·+$/g, "").replace(/^·+$/, "space")) + more);
  });
  return out;
}

/** Whether the text is a pair of sentences. @param {State} state */
export function isPair(state) {
  const kind = kindOf(state);
  return kind.queries === kind.keys && itemOf(state).axes[kind.queries].segments.includes(1);
}

/** The axes of the last few texts and choices, the newest last. @type {Map<string, { key: string, queries: Axis, keys: Axis }>} */
const axesKept = new Map();
/** @type {Map<string, Float32Array>} */
const cache = new Map();
let cached = 0;

/** @param {State} state */
export function axesOf(state) {
  const { text, words, separators, first, rescale } = state;
  const quad = isPair(state) && state.quad !== "all" ? state.quad : "";
  const key = JSON.stringify([text, kindOf(state).kind, words, separators, first, rescale, quad]);
  let found = axesKept.get(key);
  if (!found) {
    const kind = kindOf(state);
    const { axes } = itemOf(state);
    const queries = shownAxis(axes[kind.queries], state, quad[0] || "");
    const same = kind.queries === kind.keys && quad[0] === quad[1];
    const keys = same ? queries : shownAxis(axes[kind.keys], state, quad[1] || "");
    found = { key, queries, keys };
    axesKept.set(key, found);
    if (axesKept.size > MOST_AXES) axesKept.delete([...axesKept.keys()][0]);
  }
  return found;
}

/** Make a matrix, or take the one that is ready. @param {string} key @param {() => Float32Array} compute */
function ready(key, compute) {
  const kept = cache.get(key);
  if (kept) return kept;
  const out = compute();
  if (cached + out.length > MOST_CACHED) {
    cache.clear();
    cached = 0;
  }
  cache.set(key, out);
  cached += out.length;
  return out;
}

/**
 * The weights of one head over the axes as shown: summed over the keys of a word, averaged over
 * its queries that have any weight, then cut.
 * @param {State} state
 * @param {Head} head
 * @param {number} shift see `weights`
 */
function gathered(state, head, shift) {
  const { queries, keys } = axesOf(state);
  const kind = kindOf(state);
  const { axes } = itemOf(state);
  const [T, S] = [axes[kind.queries].labels.length, axes[kind.keys].labels.length];
  const base = weights(head.site, head.row, T, S, shift);
  const [R, C] = [queries.at.length, keys.at.length];
  let out = base;
  if (state.words || R !== T || C !== S) {
    const full = emptiness(head, T, S);
    out = new Float32Array(R * C);
    for (let r = 0; r < R; r++) {
      let count = 0;
      for (let t = queries.from[r]; t < queries.to[r]; t++) {
        if (!full[t]) continue;
        count++;
        for (let c = 0; c < C; c++) {
          for (let s = keys.from[c]; s < keys.to[c]; s++) out[r * C + c] += base[t * S + s];
        }
      }
      if (count > 1) for (let i = r * C; i < (r + 1) * C; i++) out[i] /= count;
    }
  }
  return out;
}

/** Which queries of a head have any weight. @param {Head} head @param {number} T @param {number} S */
function emptiness(head, T, S) {
  return ready(`${keyOf(head)} full`, () => {
    const base = weights(head.site, head.row, T, S);
    const full = new Float32Array(T);
    for (let i = 0; i < base.length; i++) if (base[i] > 0) full[Math.trunc(i / S)] = 1;
    return full;
  });
}

/** @type {Map<string, Uint8Array | null>} */
const masksKept = new Map();

/**
 * The cells over the axes as shown by which none of some heads may attend, as `MASKED` says; null where
 * there are none. What holds a key that was not selected is not selected.
 * @param {State} state
 * @param {Head[]} heads whose layers are loaded
 */
export function maskedOf(state, heads) {
  const { key, queries, keys } = axesOf(state);
  const [T, S] = [kindOf(state).queries, kindOf(state).keys].map((axis) => itemOf(state).axes[axis].labels.length);
  const [R, C] = [queries.at.length, keys.at.length];
  /** @param {Head} head */
  const own = ({ site, row }) => {
    const allowed = allowedIn(site, row, T, S);
    if (!allowed) return null;
    const each = site.reach?.bits?.each ? row : "";
    const name = `${key} ${site.chunk} ${each}`;
    let found = masksKept.get(name);
    if (found === undefined) {
      const leftOut = unselectedIn(site, S);
      found = new Uint8Array(R * C);
      for (let r = 0; r < R; r++) {
        for (let c = 0; c < C; c++) {
          let [some, left] = [false, false];
          for (let t = queries.from[r]; t < queries.to[r] && !some; t++) {
            for (let s = keys.from[c]; s < keys.to[c] && !some; s++) {
              some = allowed(t, s);
              left ||= Boolean(leftOut?.(t, s));
            }
          }
          found[r * C + c] = some ? 0 : left ? MASKED.selected : MASKED.allowed;
        }
      }
      if (!found.some(Boolean)) found = null;
      if (masksKept.size > MOST_MASKS) masksKept.clear();
      masksKept.set(name, found);
    }
    return found;
  };
  let out = heads.length ? own(heads[0]) : null;
  for (const head of heads.slice(1)) {
    const other = own(head);
    if (!out || !other) return null;
    if (other !== out) out = out.map((one, i) => bothMasked(one, other[i]));
  }
  return out;
}

/** What tells its maps from all others of the text. @param {Head} head */
function keyOf({ site, row }) {
  return `${site.chunk}.${row}`;
}

/**
 * Each row divided by its sum over what is shown. A bound divides by the sum of the opposite
 * bounds of the others: w / (w + others) grows with w and falls with them.
 * @param {Float32Array} data
 * @param {Float32Array} opposite the other bounds, or the weights themselves
 * @param {number} C
 */
export function rescaled(data, opposite, C) {
  const out = new Float32Array(data.length);
  for (let from = 0; from < data.length; from += C) {
    let sum = 0;
    for (let i = from; i < from + C; i++) sum += opposite[i];
    for (let i = from; i < from + C; i++) {
      const all = data[i] + Math.max(0, sum - opposite[i]);
      if (all > 0) out[i] = data[i] / all;
    }
  }
  return out;
}

/**
 * The weights of one head over the axes as shown, rescaled if asked for.
 * @param {State} state
 * @param {Head} head
 * @param {number} [shift] -0.5 for the least that each can have been, 0.5 for the largest
 */
export function matrix(state, head, shift = 0) {
  const { key, keys } = axesOf(state);
  return ready(`${key} ${keyOf(head)} ${shift}`, () => {
    const data = gathered(state, head, shift);
    return state.rescale ? rescaled(data, shift ? gathered(state, head, -shift) : data, keys.at.length) : data;
  });
}

/**
 * The weights of several heads as one map.
 * @param {State} state
 * @param {Head[]} heads
 * @param {string} mixed `mean` or `max`
 * @param {number} shift
 */
function together(state, heads, mixed, shift) {
  const [first, ...others] = heads.map((head) => matrix(state, head, shift));
  const data = first.slice();
  for (const one of others) {
    if (mixed === "mean") for (let i = 0; i < data.length; i++) data[i] += one[i];
    else for (let i = 0; i < data.length; i++) if (one[i] > data[i]) data[i] = one[i];
  }
  if (mixed === "mean") for (let i = 0; i < data.length; i++) data[i] /= heads.length;
  return data;
}

/**
 * @param {string} name
 * @param {string} color
 * @param {(shift: number) => Float32Array} weigh the weights, or their bounds
 * @param {number} R
 * @param {number} C
 * @param {boolean} whole whether rows sum to 1, but for the rounding of single weights
 * @param {number} full what the scale `one` ends at
 * @returns {Layer}
 */
function layer(name, color, weigh, R, C, whole, full) {
  const data = weigh(0);
  const rowTops = new Float32Array(R);
  let top = 0;
  for (let r = 0; r < R; r++) {
    let most = 0;
    for (let i = r * C; i < (r + 1) * C; i++) if (data[i] > most) most = data[i];
    rowTops[r] = most;
    if (most > top) top = most;
  }
  return { name, color, data, top, rowTops, whole, full, low: once(() => weigh(-0.5)), high: once(() => weigh(0.5)) };
}

/**
 * @template T
 * @param {() => T} compute
 * @returns {() => T} the same, computed when it is first asked for
 */
export function once(compute) {
  /** @type {{ value: T } | null} */
  let kept = null;
  return () => (kept ||= { value: compute() }).value;
}

/** @param {State} state @param {string[]} ids @returns {Panel} */
export function panelOf(state, ids) {
  const { key: shown, queries, keys } = axesOf(state);
  const [R, C] = [queries.at.length, keys.at.length];
  const heads = ids.flatMap((id) => headOf(state, id) || []);
  const mixed = mixOf(state, heads.length);
  const cut = isCut(state);
  const full = fullOf(state);
  /** @param {Head} head */
  const whole = (head) => head.data.whole && (!cut || state.rescale);
  /** @type {Layer[]} */
  let layers;
  if (mixed === "mean" || mixed === "max") {
    const key = `${shown} ${mixed} ${heads.map(keyOf)}`;
    /** @param {number} shift */
    const weigh = (shift) => ready(`${key} ${shift}`, () => together(state, heads, mixed, shift));
    layers = [layer(`${mixed} of ${several(state, heads.length)}`, seriesColor(0), weigh, R, C, mixed === "mean" && heads.every(whole), full)];
  } else {
    layers = heads.map((head, i) => layer(head.title, seriesColor(i), (shift) => matrix(state, head, shift), R, C, whole(head), full));
  }
  return { queries, keys, R, C, layers, mixed, cut, rescaled: state.rescale, noun: nounOf(state), masked: maskedOf(state, heads) };
}

/** Whether the layers of what is shown are unpacked. @param {State} state */
export function loadedPanel(state) {
  return state.on.every((id) => { const head = headOf(state, id); return head && isLoaded(head.site); });
}

/** What the scale `one` ends at: a share of 1, or the largest norm of any head. @param {State} state */
export function fullOf(state) {
  return state.rescale ? 1 : kindOf(state).full;
}

/** The same in words. @param {State} state */
export function fullSaid(state) {
  const { quantity, formula } = kindOf(state);
  return quantity === "weights" || state.rescale ? "a weight of 1" : `the largest ${formula} of all`;
}

/** What the numbers are. @param {State} state */
export function nounOf(state) {
  const { quantity, formula } = kindOf(state);
  return quantity === "weights" ? "weight" : state.rescale ? `share of ${formula}` : formula;
}

/** @type {{ of: Panel, state: State, panel: Panel } | null} */
let besides = null;

/**
 * The same panel by the other quantity; null where the page has one, or its layers are not unpacked.
 * @param {Panel} panel
 * @param {State} state
 */
export function otherPanel(panel, state) {
  const other = otherOf(state);
  if (!other || !loadedPanel(other)) return null;
  if (besides?.of !== panel) besides = { of: panel, state, panel: panelOf(other, state.on) };
  return besides.panel;
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

/** What was left out, and whether rows were rescaled. @param {State} state @param {boolean} cut */
export function cutSaid(state, cut) {
  if (!cut) return state.rescale ? ["Each row is rescaled: divided by its sum."] : [];
  const quad = isPair(state) && state.quad !== "all";
  const what = [
    ...(quad ? [`Only queries of sentence ${state.quad[0]} and keys of sentence ${state.quad[1]} are shown`] : []),
    ...(state.separators || state.first || !quad ? ["some tokens are hidden"] : []),
  ].join(", ");
  const rows = state.rescale
    ? "and each row is rescaled: divided by its sum over the keys shown"
    : `the ${nounOf(state) === "weight" ? "weights are as they were, so rows can sum to less than 1" : "norms are as they were"}`;
  return [`${what[0].toUpperCase()}${what.slice(1)}${state.rescale ? ", " : "; "}${rows}.`];
}

/** Whether tokens are left out of what is shown. @param {State} state */
export function isCut(state) {
  const { queries, keys } = axesOf(state);
  const kind = kindOf(state);
  const { axes } = itemOf(state);
  const [R, C] = [kind.queries, kind.keys].map((axis) => axes[axis][state.words ? "starts" : "labels"].length);
  return queries.at.length < R || keys.at.length < C;
}

/** What must be said about the weights shown. @param {Panel} panel @param {State} state */
export function saidOf(panel, state) {
  const said = [];
  if (panel.noun !== "weight") said.push(`Not weights but ${panel.noun}, what is written with them.`);
  if (panel.mixed === "mean" && state.mix === "blend") {
    said.push(`More than ${MOST_BLENDED} heads are on: their mean is shown, since so many colours cannot be told apart.`);
  }
  const cells = { map: "cell", text: "word", stage: "cell" }[state.view];
  if (panel.mixed === "blend" && cells) said.push(`Each ${cells} has the colour of the head that leads there, by its share.`);
  if (panel.mixed === "max") said.push(`The largest ${panel.noun} of any head that is on; rows can sum to more than 1.`);
  if (state.words) said.push("Words: summed over a word's keys, averaged over its queries.");
  said.push(...cutSaid(state, panel.cut));
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

/** Which entries match what is searched for. @param {Axis} axis @param {string} find */
export function matches(axis, find) {
  const wanted = find.trim().toLowerCase();
  if (!wanted) return [];
  return axis.labels.flatMap((label, i) => (label.toLowerCase().includes(wanted) ? [i] : []));
}

/** How a cell is masked that two maps have; 0 where one of them may attend. @param {number} one @param {number} other */
export function bothMasked(one, other) {
  return one && other ? Math.max(one, other) : 0;
}

/** The numbers' precision, in words. @param {State} state */
export function precision(state) {
  const { quantity, error } = kindOf(state);
  return `${quantity === "weights" ? "weights" : "norms"} in ${page.bits} bits, off by at most ${upward(error, 2)}`;
}

/**
 * One weight of a panel, with the digits that are known.
 * @param {Panel} panel
 * @param {number} l which of its layers
 * @param {number} i which cell
 * @param {number} [most] significant digits
 */
export function weightText(panel, l, i, most = 2) {
  const { low, high, signed } = panel.layers[l];
  if (panel.masked?.[i]) return maskedText(panel.masked[i]);
  return (signed ? knownChange : known)(low()[i], high()[i], most);
}

/**
 * A weight that has room in a cell: two decimals, of what is larger than a weight two digits, and no
 * zero in front.
 * @param {Panel} panel of one layer
 * @param {number} i which cell
 */
export function cellText(panel, i) {
  const { low, high, signed } = panel.layers[0];
  const [least, most] = [low()[i], high()[i]];
  const negative = least + most < 0;
  const size = Math.max(Math.abs(least), Math.abs(most));
  const decimals = size > 1.5 ? decimalsOf(size, 2) : 2;
  const text = negative ? shortened(-most, -least, decimals) : shortened(least, most, decimals);
  const sign = signed && Number(text) ? (negative ? "−" : "+") : "";
  return sign + text.replace(/^0(?=\.)/, "");
}

/**
 * Whether a cell may have weight, as files say it: 1, 0, or nothing where that is not known.
 * @param {State} state
 * @param {Uint8Array | null} masked
 */
export function allowedText(state, masked) {
  const known = kindOf(state).sites.every(({ reach }) => reach);
  return (/** @type {number} */ i) => (known ? (masked?.[i] ? "0" : "1") : "");
}

/**
 * The numbers of heads as they are shown, a line a pair of query and key. Beside each weight stands
 * how far it can be off; both are empty where the query may not attend to the key, and `allowed` says
 * whether it may in any of the heads, `selected` whether an indexer kept a key that is not blocked
 * otherwise. The first line's note says what was done to the weights.
 * @param {State} state
 * @param {string[]} ids
 * @returns {Generator<string[]>}
 */
export function* pairs(state, ids) {
  const panel = panelOf(state, ids);
  const { queries, keys, R, C } = panel;
  const bounds = panel.layers.map(({ low, high }) => ({ low: low(), high: high() }));
  const heads = ids.flatMap((id) => headOf(state, id) || []);
  const masks = panel.layers.length === heads.length ? heads.map((head) => maskedOf(state, [head])) : [panel.masked];
  const allowed = allowedText(state, panel.masked);
  const selects = heads.some(({ site }) => site.reach?.unselected != null);
  yield ["query_index", "query", "key_index", "key", ...panel.layers.flatMap(({ name }) => [name, `${name} ±`]), "allowed", ...(selects ? ["selected"] : []), "note"];
  const note = [`${itemOf(state).model}, ${kindOf(state).title}; ${precision(state)}, each by at most its ±.`, ...saidOf(panel, state)].join(" ");
  for (let i = 0; i < R * C; i++) {
    const [r, c] = [Math.trunc(i / C), i % C];
    const numbers = bounds.flatMap(({ low, high }, l) => (masks[l]?.[i] ? ["", ""] : withError(low[i], high[i])));
    const selected = selects ? [["1", "", "0"][panel.masked?.[i] || 0]] : [];
    yield [String(queries.at[r]), queries.labels[r], String(keys.at[c]), keys.labels[c], ...numbers, allowed(i), ...selected, i ? "" : note];
  }
}

/** The numbers of the heads that are on. @param {State} state */
export function pairsTable(state) {
  return pairs(state, state.on);
}
