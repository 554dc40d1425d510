import { spareRoom } from "./kernel.js";
import { product } from "./product.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Layer} Layer */
/** @typedef {import("./types.js").Norm} Norm */

/** Rows are kept in steps of so many, so that typing does not move them at every letter. */
const STEP = 64;

/**
 * A forward pass that remembers: states, keys, values and weights of every layer.
 *
 * What a change leaves as it was is not computed again: in a causal model the tokens before the
 * first one that changed, in any model the layers below the first one whose heads were switched.
 */
export class Pass {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    /** @type {number[]} */
    this.ids = [];
    /** Share of every head's output that passes, [layers * heads]. */
    this.gates = new Float32Array(model.layers.length * model.heads).fill(1);
    /** Whether each place has its own position vector, or all have their mean. */
    this.places = true;
    /** How many layers the last run computed weights of, and how many outputs of. */
    this.computed = { attended: 0, passed: 0 };
    /** A bug that is planted in the attention of layer 0, by the name that attnviz check has for it; "" for none. */
    this.bug = "";
    this.meanPlace = meanRow(model.positions, model.width);
    /** Tokens that there is room for. */
    this.room = 0;
    const none = new Float32Array(0);
    /** What enters each layer, and what leaves the last, [room, width]. @type {Float32Array[]} */
    this.states = [];
    /** Queries, keys and values of each layer side by side, [room, 3 width]. @type {Float32Array[]} */
    this.projected = [];
    /** Weights of each layer, [heads, room, room]. @type {Float32Array[]} */
    this.weights = [];
    /** What the heads of each layer hand to W_O, and what its feed-forward part adds, [room, width]. @type {Float32Array[]} */
    this.mixed = [];
    /** @type {Float32Array[]} */
    this.fed = [];
    this.read = none;
    this.added = none;
    this.wide = none;
    this.grow(STEP);
  }

  /** Make room for texts of so many tokens. @param {number} tokens */
  grow(tokens) {
    const { heads, width, inner, layers } = this.model;
    if (tokens <= this.room) return;
    this.room = Math.ceil(tokens / STEP) * STEP;
    this.ids = [];
    const rows = (/** @type {number} */ size) => new Float32Array(this.room * size);
    this.states = Array.from({ length: layers.length + 1 }, () => rows(width));
    this.projected = layers.map(() => rows(3 * width));
    this.weights = layers.map(() => new Float32Array(heads * this.room * this.room));
    this.mixed = layers.map(() => rows(width));
    this.fed = layers.map(() => rows(width));
    this.read = rows(width);
    this.added = rows(width);
    this.wide = rows(inner);
  }

  /**
   * Run a text.
   * @param {number[]} ids
   * @param {Float32Array} gates
   * @param {boolean} [places] false: the mean position vector stands at every place
   * @param {Pass | null} [like] a pass whose layers are taken over up to the first one that differs
   * @param {string} [bug]
   */
  run(ids, gates, places = true, like = null, bug = "") {
    this.grow(ids.length);
    const { layers, heads, causal } = this.model;
    const count = ids.length;
    let same = alike(ids, this.ids);
    if ((!causal && (same < count || this.ids.length !== count)) || places !== this.places) same = 0;
    if (bug || this.bug) {
      same = 0;
      this.weights[0].fill(0); // where the bug gave a weight, and nothing else does
    }
    const switched = Math.floor(alike(gates, this.gates) / heads);
    const lent = like && !bug && like.places === places && like.ids.length === count && alike(ids, like.ids) === count
      ? Math.floor(alike(gates, like.gates) / heads) : -1;
    this.ids = ids.slice();
    this.gates = gates.slice();
    this.places = places;
    this.bug = bug;
    this.computed = { attended: 0, passed: 0 };
    this.embed(same);
    for (let layer = 0; layer < layers.length; layer++) {
      // keys and values of the first layer that was switched are as they were, its outputs are not
      const [first, second] = [layer <= switched ? same : 0, layer < switched ? same : 0];
      if (like && layer <= lent) this.takeAttention(like, layer, first);
      else if (first < count) this.attend(layer, first);
      if (like && layer < lent) this.takeOutputs(like, layer, second);
      else if (second < count) this.pass(layer, second);
    }
  }

  /** @param {Float32Array[]} from @param {Float32Array[]} to @param {number} number @param {number} first row */
  takeRows(from, to, number, first) {
    const size = to[number].length / this.room;
    to[number].set(from[number].subarray(first * size, this.ids.length * size), first * size);
  }

  /** @param {Pass} like @param {number} layer @param {number} first row */
  takeOutputs(like, layer, first) {
    this.takeRows(like.mixed, this.mixed, layer, first);
    this.takeRows(like.fed, this.fed, layer, first);
    this.takeRows(like.states, this.states, layer + 1, first);
  }

  /** @param {Pass} like @param {number} layer @param {number} first row */
  takeAttention(like, layer, first) {
    this.takeRows(like.projected, this.projected, layer, first);
    const count = this.ids.length;
    for (let head = 0; head < this.model.heads; head++) {
      for (let t = first; t < count; t++) {
        const at = (head * like.room + t) * like.room;
        this.weights[layer].set(like.weights[layer].subarray(at, at + count), (head * this.room + t) * this.room);
      }
    }
  }

  /** What enters the first layer, from one row on. @param {number} from */
  embed(from) {
    const { width, tokens, positions, offset, segment, norm, preNorm } = this.model;
    const out = this.states[0];
    for (let t = from; t < this.ids.length; t++) {
      const [token, place] = [this.ids[t] * width, (t + offset) * width];
      for (let i = 0; i < width; i++) {
        const where = this.places ? positions[place + i] : this.meanPlace[i];
        out[t * width + i] = tokens[token + i] + where + (segment ? segment[i] : 0);
      }
    }
    if (!preNorm) normalize(out, from, this.ids.length, norm, out);
  }

  /**
   * Where the vector of a head and a token starts among queries, keys and values.
   * @param {0 | 1 | 2} part queries, keys or values
   * @param {number} number of the layer
   * @param {number} head
   * @param {number} t
   */
  start(part, number, head, t) {
    const { width, heads } = this.model;
    // [T, H, d] read as [H, T, d], with no transpose between
    const [token, slice] = number === 0 && this.bug === "view" ? [Math.trunc((head * this.ids.length + t) / heads), (head * this.ids.length + t) % heads] : [t, head];
    return (3 * token + part) * width + (slice * width) / heads;
  }

  /** Queries, keys, values and weights of a layer. @param {number} number @param {number} from the first row */
  attend(number, from) {
    this.computed.attended++;
    const { width, heads, causal, preNorm, layers } = this.model;
    const { project, norm1, scale: factor } = layers[number];
    const bug = number === 0 ? this.bug : "";
    const scale = bug === "scale" ? 1 : factor;
    const count = this.ids.length;
    let x = this.states[number];
    if (preNorm) {
      normalize(x, from, count, norm1, this.read);
      x = this.read;
    }
    const made = this.projected[number];
    product(x, from, count, width, project.weight, project.bias, made);
    const [size, room, weights, rows] = [width / heads, this.room, this.weights[number], count - from];
    const [queries, scores, powers] = [new Float32Array(rows * size), new Float32Array(rows * count), new Float64Array(count)];
    for (let head = 0; head < heads; head++) {
      const keys = spareRoom(count * size);
      for (let t = from; t < count; t++) {
        const q = this.start(0, number, head, t);
        queries.set(made.subarray(q, q + size), (t - from) * size);
      }
      for (let s = 0; s < count; s++) {
        const k = this.start(1, number, head, s);
        keys.set(made.subarray(k, k + size), s * size);
      }
      product(queries, 0, rows, size, keys, null, scores);
      if (bug === "axis") {
        softmaxOverQueries(scores, count, scale, causal, (t, s, weight) => { weights[(head * room + t) * room + s] = weight; });
        continue;
      }
      const sees = bug === "off by one" ? 2 : 1; // a token itself, and with the bug the next one
      for (let t = from; t < count; t++) {
        const [first, row, last] = [(t - from) * count, (head * room + t) * room, causal ? Math.min(t + sees, count) : count];
        let most = -Infinity;
        for (let s = 0; s < last; s++) most = Math.max(most, scores[first + s]);
        let total = 0;
        for (let s = 0; s < last; s++) total += powers[s] = Math.exp((scores[first + s] - most) * scale);
        for (let s = 0; s < last; s++) weights[row + s] = powers[s] / total;
      }
    }
  }

  /** From a layer's weights to what leaves it. @param {number} number @param {number} from the first row */
  pass(number, from) {
    this.computed.passed++;
    const { width, inner, heads, preNorm, layers, activation } = this.model;
    const { out, up, down, norm1, norm2 } = layers[number];
    const [count, made, maps] = [this.ids.length, this.projected[number], this.weights[number]];
    const [size, room, glued] = [width / heads, this.room, number === 0 && this.bug === "merge"];
    const rows = count - from;
    // as many keys as the kernel takes at a time; beyond the last there is no weight
    const across = Math.ceil(count / 4) * 4;
    const [shares, mixed, whole, fed] = [new Float32Array(rows * across), new Float32Array(rows * size), this.mixed[number], this.fed[number]];
    whole.fill(0, from * width, count * width);
    for (let head = 0; head < heads; head++) {
      const gate = this.gates[number * heads + head];
      if (!gate) continue;
      const values = spareRoom(size * across).fill(0);
      for (let s = 0; s < count; s++) {
        for (let i = 0, v = this.start(2, number, head, s); i < size; i++) values[i * across + s] = made[v + i];
      }
      for (let t = from; t < count; t++) {
        const row = (head * room + t) * room;
        shares.set(maps.subarray(row, row + count), (t - from) * across);
      }
      product(shares, 0, rows, across, values, null, mixed);
      for (let t = from; t < count; t++) {
        // [H, T, d] read as [T, D], where that is the bug
        for (let i = 0, z = glued ? (head * count + t) * size : t * width + head * size; i < size; i++) whole[z + i] = gate * mixed[(t - from) * size + i];
      }
    }
    const [x, y] = [this.states[number], this.states[number + 1]];
    product(whole, from, count, width, out.weight, out.bias, this.added);
    for (let i = from * width; i < count * width; i++) y[i] = x[i] + this.added[i];
    if (!preNorm) normalize(y, from, count, norm1, y);
    let read = y;
    if (preNorm) {
      normalize(y, from, count, norm2, this.read);
      read = this.read;
    }
    product(read, from, count, width, up.weight, up.bias, this.wide);
    const [act, wide] = [ACTIVATIONS[activation], this.wide];
    for (let i = from * inner; i < count * inner; i++) wide[i] = act(wide[i]);
    product(this.wide, from, count, inner, down.weight, down.bias, fed);
    for (let i = from * width; i < count * width; i++) y[i] += fed[i];
    if (!preNorm) normalize(y, from, count, norm2, y);
  }

  /**
   * The logits of every token of the vocabulary at one position; null for models without an LM head.
   * @param {number} position
   * @param {number} [layer] read before this layer, as if it were the end; at the end by default
   */
  logits(position, layer = this.model.layers.length) {
    const { width, words, norm, preNorm, activation } = this.model;
    if (!words) return null;
    let state = this.states[layer].slice(position * width, (position + 1) * width);
    if (preNorm) normalize(state, 0, 1, norm, state);
    if (words.dense && words.norm) {
      const dense = new Float32Array(width);
      product(state, 0, 1, width, words.dense.weight, words.dense.bias, dense);
      state = dense.map(ACTIVATIONS[activation]);
      normalize(state, 0, 1, words.norm, state);
    }
    const found = new Float32Array(words.table.length / width);
    product(state, 0, 1, width, words.table, words.bias, found);
    return found;
  }

  /** The weights of a layer, [heads, tokens, tokens]. @param {number} number */
  maps(number) {
    const [count, { heads }, room] = [this.ids.length, this.model, this.room];
    const found = new Float32Array(heads * count * count);
    for (let head = 0; head < heads; head++) {
      for (let t = 0; t < count; t++) {
        const row = (head * room + t) * room;
        found.set(this.weights[number].subarray(row, row + count), (head * count + t) * count);
      }
    }
    return found;
  }
}

/**
 * Shares of queries in place of keys: every column sums to 1.
 * @param {Float32Array} scores [count, count]
 * @param {number} count
 * @param {number} scale
 * @param {boolean} causal
 * @param {(t: number, s: number, weight: number) => void} give
 */
function softmaxOverQueries(scores, count, scale, causal, give) {
  for (let s = 0; s < count; s++) {
    const column = Array.from({ length: count }, (_, t) => (causal && s > t ? -Infinity : scores[t * count + s] * scale));
    const most = Math.max(...column);
    const powers = column.map((score) => Math.exp(score - most));
    const total = powers.reduce((a, b) => a + b, 0);
    powers.forEach((power, t) => give(t, s, power / total));
  }
}

/** How many of the first entries are equal. @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
function alike(a, b) {
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) same++;
  return same;
}

/** @param {Float32Array} rows @param {number} width */
function meanRow(rows, width) {
  const mean = new Float64Array(width);
  for (let i = 0; i < rows.length; i++) mean[i % width] += rows[i];
  return Float32Array.from(mean, (sum) => (sum * width) / rows.length);
}

/**
 * Layer normalization of rows (Ba et al. 2016, arXiv:1607.06450).
 * @param {Float32Array} x
 * @param {number} from
 * @param {number} to
 * @param {Norm} norm
 * @param {Float32Array} out may be x
 */
export function normalize(x, from, to, { weight, bias, eps }, out) {
  const width = weight.length;
  for (let t = from; t < to; t++) {
    const at = t * width;
    let mean = 0;
    for (let i = 0; i < width; i++) mean += x[at + i];
    mean /= width;
    let spread = 0;
    for (let i = 0; i < width; i++) spread += (x[at + i] - mean) ** 2;
    const factor = 1 / Math.sqrt(spread / width + eps);
    for (let i = 0; i < width; i++) out[at + i] = (x[at + i] - mean) * factor * weight[i] + bias[i];
  }
}

/** GELU's tanh form. @param {number} x */
function tanhGelu(x) {
  return 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/** GELU; erf by Abramowitz & Stegun 7.1.26, off by at most 1.5e-7. @param {number} x */
function gelu(x) {
  const z = Math.abs(x) * Math.SQRT1_2;
  const t = 1 / (1 + 0.3275911 * z);
  const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * Math.exp(-z * z);
  return x > 0 ? x * (1 - 0.5 * tail) : 0.5 * x * tail;
}

/** @param {number} x */
function relu(x) {
  return Math.max(0, x);
}

/** @type {Record<string, (x: number) => number>} */
const ACTIVATIONS = { gelu, gelu_tanh: tanhGelu, relu };
