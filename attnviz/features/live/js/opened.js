import { originsOf } from "./origins.js";

/** @typedef {import("./types.js").Opened} Opened */

/**
 * What the weights of one head are made of in a pass that has run: queries, keys, values, what
 * the first two are from, and the norms of values through W_O, which are zero for a head that is off.
 * @param {import("./network.js").Pass} pass
 * @param {number} number the head's, of all heads
 * @returns {Opened}
 */
export function opened(pass, number) {
  const { width, heads, layers } = pass.model;
  const [layer, head, S, size] = [Math.trunc(number / heads), number % heads, pass.ids.length, width / heads];
  const made = pass.projected[layer];
  /** Queries, keys or values. @param {number} part */
  const rows = (part) => {
    const found = new Float32Array(S * size);
    for (let t = 0; t < S; t++) {
      const from = 3 * width * t + part * width + head * size;
      found.set(made.subarray(from, from + size), t * size);
    }
    return found;
  };
  const [values, { weight }] = [rows(2), layers[layer].out];
  const norms = new Float32Array(S);
  for (let s = 0; s < S; s++) {
    let square = 0;
    for (let o = 0; o < width; o++) {
      let sum = 0;
      for (let i = 0; i < size; i++) sum += weight[o * width + head * size + i] * values[s * size + i];
      square += sum * sum;
    }
    norms[s] = Math.sqrt(square) * pass.gates[number];
  }
  return { queries: rows(0), keys: rows(1), values, norms, width: size, S, scale: layers[layer].scale, split: originsOf(pass, number) };
}
