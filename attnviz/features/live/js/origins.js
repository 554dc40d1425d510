import { spareRoom } from "./kernel.js";
import { product } from "./product.js";

/** @typedef {import("./types.js").Norm} Norm */
/** @typedef {import("./types.js").Split} Split */
/** @typedef {[kind: string, name: string]} Name */

/** Numbers of all sources of one head that are sent; of longer texts none are. */
const MOST = 2 ** 21;

/**
 * The residual stream as a sum: what each source wrote, with every normalization's mean and scale
 * held at their values here, so that the sources of what it gives add up to it.
 */
class Stream {
  /** @param {number} width @param {number} count tokens @param {number} most sources */
  constructor(width, count, most) {
    this.width = width;
    this.count = count;
    /** @type {number} */
    this.size = width * count;
    /** @type {Name[]} */
    this.names = [];
    /** One source after the other, [most, count, width]; what is constant is the first. @type {Float32Array} */
    this.parts = new Float32Array(most * this.size);
    this.total = new Float64Array(this.size);
    this.add("bias", "biases");
  }

  /** A source that wrote nothing yet. @param {string} kind @param {string} name */
  add(kind, name) {
    this.names.push([kind, name]);
    return this.parts.subarray((this.names.length - 1) * this.size, this.names.length * this.size);
  }

  /** Take in what was written. @param {Float32Array} part */
  take(part) {
    for (let i = 0; i < this.size; i++) this.total[i] += part[i];
  }

  /** Of constants. @param {ArrayLike<number>} bias */
  constant(bias) {
    for (let i = 0; i < this.size; i++) {
      this.parts[i] += bias[i % this.width];
      this.total[i] += bias[i % this.width];
    }
  }

  /** Layer normalization of the sum, and so of every part. @param {Norm} norm */
  normalize({ weight, bias, eps }) {
    const { width, count, size, parts, total } = this;
    for (let t = 0; t < count; t++) {
      const at = t * width;
      let spread = 0;
      const mean = meanOf(total, at, width);
      for (let i = at; i < at + width; i++) spread += (total[i] - mean) ** 2;
      const factor = 1 / Math.sqrt(spread / width + eps);
      scaled(total, at, factor, weight);
      for (let n = 0; n < this.names.length; n++) scaled(parts, n * size + at, factor, weight);
    }
    this.constant(bias);
  }
}

/** @param {ArrayLike<number>} x @param {number} at @param {number} width */
function meanOf(x, at, width) {
  let sum = 0;
  for (let i = at; i < at + width; i++) sum += x[i];
  return sum / width;
}

/** A row less its mean, scaled. @param {Float32Array | Float64Array} x @param {number} at @param {number} factor @param {Float32Array} weight */
function scaled(x, at, factor, weight) {
  const mean = meanOf(x, at, weight.length);
  for (let i = 0; i < weight.length; i++) x[at + i] = (x[at + i] - mean) * factor * weight[i];
}

/**
 * What was written before a layer, as its queries and keys read it.
 * @param {import("./network.js").Pass} pass
 * @param {number} end the layer
 */
function streamBefore(pass, end) {
  const { model, ids } = pass;
  const { width, heads, tokens, positions, offset, segment, norm, preNorm, layers } = model;
  const count = ids.length;
  const stream = new Stream(width, count, 4 + end * (heads + 1));
  const rows = (/** @type {string} */ name, /** @type {(t: number) => Float32Array} */ row) => {
    const part = stream.add(name, name);
    for (let t = 0; t < count; t++) part.set(row(t), t * width);
    stream.take(part);
  };
  rows("token", (t) => tokens.subarray(ids[t] * width, (ids[t] + 1) * width));
  rows("position", (t) => (pass.places ? positions.subarray((t + offset) * width, (t + offset + 1) * width) : pass.meanPlace));
  if (segment) rows("segment", () => segment);
  if (!preNorm) stream.normalize(norm);
  for (let number = 0; number < end; number++) {
    const { out, norm1, norm2 } = layers[number];
    for (let head = 0; head < heads; head++) {
      const part = stream.add("head", `${number}.${head}`);
      written(pass, number, head, part);
      stream.take(part);
    }
    stream.constant(out.bias);
    if (!preNorm) stream.normalize(norm1);
    const part = stream.add("mlp", `MLP ${number}`);
    part.set(pass.fed[number].subarray(0, stream.size));
    stream.take(part);
    if (!preNorm) stream.normalize(norm2);
  }
  if (preNorm) stream.normalize(layers[end].norm1);
  return stream;
}

/**
 * What a head writes: its columns of W_O times what it hands to them.
 * @param {import("./network.js").Pass} pass
 * @param {number} number of the layer
 * @param {number} head
 * @param {Float32Array} part [tokens, width]
 */
function written({ model, ids, mixed }, number, head, part) {
  const { width, heads, layers } = model;
  const size = width / heads;
  const [own, z] = [spareRoom(width * size), new Float32Array(ids.length * size)];
  for (let o = 0; o < width; o++) {
    const from = o * width + head * size;
    own.set(layers[number].out.weight.subarray(from, from + size), o * size);
  }
  for (let t = 0; t < ids.length; t++) {
    const from = t * width + head * size;
    z.set(mixed[number].subarray(from, from + size), t * size);
  }
  product(z, 0, ids.length, size, own, null, part);
}

/**
 * What queries and keys of a head were made of, in a pass that has run; see attnviz.models.decomposition.
 * @param {import("./network.js").Pass} pass
 * @param {number} number the head's, of all heads
 * @returns {{ query: Split, key: Split } | null} null where it would be too much
 */
export function originsOf(pass, number) {
  const { width, heads, layers } = pass.model;
  const [layer, head, size, count] = [Math.trunc(number / heads), number % heads, width / heads, pass.ids.length];
  if (2 * (4 + layer * (heads + 1)) * count * size > MOST) return null;
  const { names, parts } = streamBefore(pass, layer);
  const { weight, bias } = layers[layer].project;
  /** Of queries, or of keys. @param {number} side */
  const split = (side) => {
    const first = side * width + head * size;
    const found = new Float32Array(names.length * count * size);
    product(parts, 0, names.length * count, width, weight.subarray(first * width, (first + size) * width), null, found);
    for (let i = 0; i < count * size; i++) found[i] += bias[first + (i % size)];
    return { names, parts: found };
  };
  return { query: split(0), key: split(1) };
}
