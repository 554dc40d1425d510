import { axesOf, fullOf, matrix } from "./panel.js";
import { sceneOf } from "./data.js";
import { rampOf } from "./colors.js";
import { rgb } from "./palette.js";
import { axesData, placeName, spotsOf } from "./scene.js";
import { chosen } from "./token.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {{ queries: import("./types.js").Axis, keys: import("./types.js").Axis }} Axes */
/** @typedef {import("./types.js").Token} Token */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Scene} Scene */

/** How much of a patch is colour where the largest weight lies. */
const STRONGEST = 0.85;
/** What stands for all patches or frames together, in place of an entry. */
export const ALL = -1;

/**
 * From where is looked when nothing is pointed at: [CLS], the last token of a text, or all patches.
 * @param {Axes} axes
 * @param {import("./types.js").AxisData} data of the queries
 * @param {State} state
 * @returns {Token}
 */
function usual({ queries, keys }, data, state) {
  const side = queries === keys && state.toward ? "k" : "q";
  const out = queries.from.flatMap((from, i) => (data.cells.length && data.cells[from] !== -1 ? [] : [i]));
  const texts = out.filter((i) => !queries.special[i]);
  if (texts.length) return { side, i: texts[texts.length - 1] };
  return { side, i: out.length ? out[0] : ALL };
}

/**
 * The weights from a query to all keys, or from all queries to a key; for all patches their mean.
 * @param {ArrayLike<number>} data [R, C]
 * @param {number} R
 * @param {number} C
 * @param {Token} token
 * @param {number[]} spots the entries that stand for all
 */
export function along(data, R, C, { side, i }, spots) {
  const out = new Float32Array(side === "q" ? C : R);
  const some = i === ALL ? spots.filter((one) => one >= 0) : [i];
  for (const one of some) {
    if (side === "q") for (let c = 0; c < C; c++) out[c] += data[one * C + c];
    else for (let r = 0; r < R; r++) out[r] += data[r * C + one];
  }
  if (some.length > 1) for (let n = 0; n < out.length; n++) out[n] /= some.length;
  return out;
}

/** The largest weight on a patch or frame: the full colour. @param {Float32Array} values @param {number[]} spots */
export function largest(values, spots) {
  let most = 0;
  for (const i of spots) if (i >= 0 && values[i] > most) most = values[i];
  return most;
}

/**
 * The colour of every patch and how much of it, into an array of r, g, b, a.
 * @param {Uint8ClampedArray} out
 * @param {number} from where to begin in it
 * @param {{ values: Float32Array, full: number, color: string }[]} layers
 * @param {number[]} spots
 * @param {State} state
 */
export function tintInto(out, from, layers, spots, state) {
  const colors = rampOf(state.palette);
  const own = layers.map(({ color }) => (layers.length > 1 ? rgb(color) : null));
  spots.forEach((i, cell) => {
    if (i < 0) return;
    let [leader, share] = [0, 0];
    layers.forEach(({ values, full }, l) => {
      const part = full > 0 ? Math.min(1, values[i] / full) : 0;
      if (part > share) [leader, share] = [l, part];
    });
    const step = 3 * Math.round(share * 255);
    const color = own[leader] || [colors[step], colors[step + 1], colors[step + 2]];
    out.set([...color, Math.round(255 * STRONGEST * Math.sqrt(share))], from + 4 * cell);
  });
}

/**
 * The colours of every head on a scene, one after the other, from the same token; each by its
 * own largest weight.
 * @param {State} state
 * @param {Head[]} heads whose layers are loaded
 * @param {Scene} scene
 * @param {Token} token
 * @param {{ tinted: number[], asking: number[] }} spots of the axis that is tinted, and of the token's
 */
export function tintsOf(state, heads, scene, token, { tinted, asking }) {
  const { queries, keys } = axesOf(state);
  const size = 4 * scene.rows * scene.columns;
  const out = new Uint8ClampedArray(size * heads.length);
  heads.forEach((head, n) => {
    const values = along(matrix(state, head), queries.at.length, keys.at.length, token, asking);
    const full = state.scale === "one" ? fullOf(state) : largest(values, tinted);
    tintInto(out, n * size, [{ values, full, color: "" }], tinted, state);
  });
  return out;
}

/**
 * The patches of both axes, and which of them are tinted and which ask.
 * @param {Scene} scene
 * @param {import("./types.js").AxisData[]} data of queries and keys
 * @param {Axes} axes
 * @param {string} side of the token
 */
export function spotsFor(scene, data, { queries, keys }, side) {
  const [q, k] = [spotsOf(scene, data[0], queries), spotsOf(scene, data[1], keys)];
  return side === "q" ? { tinted: k, asking: q } : { tinted: q, asking: k };
}

/**
 * From where a scene is seen, and which of its patches or frames are tinted: from the token that is
 * pointed at or pinned, else from the usual one.
 * @param {State} state
 * @param {Axes} axes
 * @param {Scene} scene
 * @param {Token | null} over
 */
export function gazeOf(state, axes, scene, over) {
  const data = axesData(state);
  const token = chosen(axes, state, over) || usual(axes, data[0], state);
  return { token, ...spotsFor(scene, data, axes, token.side) };
}

/** A token by its name or place. @param {State} state @param {Axes} axes @param {Token} token */
export function nameOf(state, { queries, keys }, { side, i }) {
  const scene = sceneOf(state);
  if (i === ALL) return scene?.kind === "sound" ? "all frames" : "all patches";
  const [axis, data] = side === "q" ? [queries, axesData(state)[0]] : [keys, axesData(state)[1]];
  return placeName(scene, data, axis, i);
}
