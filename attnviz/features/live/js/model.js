import { startKernel } from "./kernel.js";
import { unpack } from "./unpack.js";

/** @typedef {import("./types.js").Network} Network */
/** @typedef {import("./types.js").Model} Model */

/**
 * The network, ready to run.
 * @param {Network} network
 * @param {string} packed
 * @param {string} [kernel] product.wasm in base64
 * @returns {Promise<Model>}
 */
export async function load(network, packed, kernel = "") {
  const { entries, width, inner, heads, maxTokens } = network;
  const sizes = entries.map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  // every row that is multiplied or made: of the network, and a single one of the vocabulary
  const rows = entries.map(({ shape }) => (shape.length > 1 ? shape[0] : 0));
  startKernel(kernel, sizes, Math.max(3 * width, inner, maxTokens + 4, Math.ceil(Math.max(...rows) / 32)), (maxTokens + 4) * (width / heads));
  const arrays = await unpack(network.entries, packed);
  const maybe = (/** @type {string} */ name) => arrays.get(name) || null;
  const take = (/** @type {string} */ name) => {
    const found = arrays.get(name);
    if (!found) throw new Error(`the page lacks ${name}`);
    return found;
  };
  const affine = (/** @type {string} */ name) => ({ weight: take(`${name}.weight`), bias: take(`${name}.bias`) });
  const norm = (/** @type {string} */ name) => ({ ...affine(name), eps: network.eps });
  const dense = arrays.has("words.dense.weight");
  return {
    ...network,
    tokens: take("tokens"),
    positions: take("positions"),
    segment: maybe("segment"),
    norm: norm("norm"),
    layers: network.scales.map((scale, l) => ({
      project: affine(`${l}.project`),
      out: affine(`${l}.out`),
      norm1: norm(`${l}.norm1`),
      up: affine(`${l}.up`),
      down: affine(`${l}.down`),
      norm2: norm(`${l}.norm2`),
      scale,
    })),
    words: network.words ? {
      table: network.tied ? take("tokens") : take("words.table"),
      bias: maybe("words.bias"),
      dense: dense ? affine("words.dense") : null,
      norm: dense ? norm("words.norm") : null,
    } : null,
  };
}
