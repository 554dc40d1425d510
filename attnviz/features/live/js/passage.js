import { best, shares } from "./chance.js";
import { normalize } from "./network.js";
import { product } from "./product.js";

/** @typedef {import("./types.js").Passage} Passage */

/** Multiplications that reading every layer may take; larger vocabularies are read at the end only. */
const MOST_READING = 6e7;

/** The norm of a row. @param {Float32Array} rows @param {number} width @param {number} t */
export function norm(rows, width, t) {
  return Math.hypot(...rows.subarray(t * width, (t + 1) * width));
}

/** The norm of a vector. @param {Float32Array} vector */
function length(vector) {
  return norm(vector, vector.length, 0);
}

/**
 * What a normalization does with a vector.
 * @param {Float32Array} vector
 * @param {import("./types.js").Norm} by
 * @returns {import("./types.js").Normed}
 */
export function normed(vector, by) {
  const mean = vector.reduce((sum, value) => sum + value, 0) / vector.length;
  const spread = Math.sqrt(vector.reduce((sum, value) => sum + (value - mean) ** 2, 0) / vector.length);
  const out = new Float32Array(vector.length);
  normalize(vector, 0, 1, by, out);
  return { mean, spread, reads: length(vector), gives: length(out) };
}

/**
 * The residual stream of a position between a layer's attention and its MLP, and both normalizations.
 * @param {import("./network.js").Pass} pass
 * @param {number} number
 * @param {number} at
 */
function between({ model, states, mixed, fed }, number, at) {
  const { width, preNorm, layers } = model;
  const { out, norm1, norm2 } = layers[number];
  const row = (/** @type {Float32Array} */ rows) => rows.slice(at * width, (at + 1) * width);
  const [before, added] = [row(states[number]), new Float32Array(width)];
  product(row(mixed[number]), 0, 1, width, out.weight, out.bias, added);
  const sum = before.map((value, i) => value + added[i]);
  const middle = sum.slice();
  if (!preNorm) normalize(sum, 0, 1, norm1, middle);
  const written = row(fed[number]);
  return {
    attended: length(added), middle: length(middle),
    normed: preNorm ? [normed(before, norm1), normed(sum, norm2)] : [normed(sum, norm1), normed(middle.map((value, i) => value + written[i]), norm2)],
  };
}

/**
 * What a position passes through: how much every head, attention and the MLP write there, how large the
 * residual stream is between them and after each layer, what its normalizations read, and what the LM head
 * would say of it (the logit lens), where layers add to what they get.
 * @param {import("./network.js").Pass} pass
 * @param {number} at
 * @returns {Passage[]} one for each layer
 */
export function passage(pass, at) {
  const { layers, heads, words, preNorm, width } = pass.model;
  const readable = words && preNorm && layers.length * words.table.length <= MOST_READING;
  return layers.map((_, number) => {
    const written = Array.from({ length: heads }, (_, head) => writtenBy(pass, number, head, at));
    const [fed, size] = [norm(pass.fed[number], width, at), norm(pass.states[number + 1], width, at)];
    const logits = readable ? pass.logits(at, number + 1) : null;
    const [id] = logits ? best(logits, 1) : [];
    return { written, fed, size, ...between(pass, number, at), guess: logits && { id, share: shares(logits)[id] } };
  });
}

/**
 * The norm of what a head writes at a position: its mixed values through W_O.
 * @param {import("./network.js").Pass} pass
 * @param {number} number of the layer
 * @param {number} head
 * @param {number} t
 */
function writtenBy({ model: { heads, width, layers }, mixed }, number, head, t) {
  const [size, { weight }] = [width / heads, layers[number].out];
  const given = mixed[number].subarray(t * width + head * size, t * width + (head + 1) * size);
  let square = 0;
  for (let o = 0; o < width; o++) {
    let sum = 0;
    for (let i = 0; i < size; i++) sum += weight[o * width + head * size + i] * given[i];
    square += sum * sum;
  }
  return Math.sqrt(square);
}

/**
 * q·k of one row of a head, before it is divided.
 * @param {import("./network.js").Pass} pass
 * @param {number} number the head's, of all heads
 * @param {number} at
 */
export function scoresOf(pass, number, at) {
  const { width, heads, causal } = pass.model;
  const [made, size, start] = [pass.projected[Math.trunc(number / heads)], width / heads, (number % heads) * (width / heads)];
  const found = new Float32Array(causal ? at + 1 : pass.ids.length);
  for (let s = 0; s < found.length; s++) {
    let sum = 0;
    for (let i = 0; i < size; i++) sum += made[3 * width * at + start + i] * made[3 * width * s + width + start + i];
    found[s] = sum;
  }
  return found;
}
