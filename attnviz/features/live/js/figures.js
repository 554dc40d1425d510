import { chance } from "./chance.js";
import { fixed } from "./numbers.js";
import { probability, scoreText, weightText } from "./digits.js";
import { outputs } from "./twoheads.js";

/** @typedef {import("./types.js").Answer} Answer */

/** Pairs of random vectors whose products are looked at. */
const PAIRS = 2000;

/** The softmax of scores over a divisor. @param {ArrayLike<number>} scores @param {number} divisor @param {number} [added] to every one */
export function softmax(scores, divisor, added = 0) {
  const found = Array.from(scores, (score) => score / divisor + added);
  const most = Math.max(...found);
  const powers = found.map((score) => Math.exp(score - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}

/** Products of random vectors, of numbers with variance 1. @param {number} width */
export function productsOf(width) {
  let drawn = 0;
  // Box and Muller 1958
  const normal = () => Math.sqrt(-2 * Math.log(1 - chance(1, drawn++))) * Math.cos(2 * Math.PI * chance(1, drawn++));
  return Array.from({ length: PAIRS }, () => {
    let product = 0;
    for (let i = 0; i < width; i++) product += normal() * normal();
    return product;
  });
}

/** The standard deviation. @param {number[]} values */
export function spread(values) {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
}

/**
 * A sentence with its figures, each taken from the pass that is shown, or, after `was`, from the one
 * with nothing changed: `{w 2.0 11 6}` a weight, `{p bread}` the probability of a token, `{top}` the
 * likeliest, `{previous 1.4}` the mean weight on the token before, `{sum 0.5 11}` the sum of a row, `{token 6}`, `{dot}` the product of
 * query and key, `{max 1}` the largest share of the row at a divisor (√d by default), what follows
 * from the head's width, and `{spread 2 0.5}` of the output of two heads at a variance of a key's length.
 * @param {string} text
 * @param {Answer} answer
 * @param {{ labels: string[], key: number | null, width: number, plain?: string[] }} given
 */
export function told(text, answer, given) {
  return text.replace(/\{([^}]+)\}/g, (_, inside) => {
    const words = inside.split(" ");
    const was = words[0] === "was" || !answer.after;
    if (words[0] === "was") words.shift();
    return figure(words, answer, was, given);
  });
}

/**
 * @param {string[]} words
 * @param {Answer} answer
 * @param {boolean} was
 * @param {{ labels: string[], key: number | null, width: number }} given
 */
function figure([name, ...rest], answer, was, { labels, key, width }) {
  const maps = /** @type {Float32Array[]} */ (was ? answer.before : answer.after);
  const ids = was ? answer.ids : answer.idsAfter || answer.ids;
  const scores = was ? answer.scoresBefore : answer.scoresAfter || answer.scoresBefore;
  const [count, root] = [ids.length, Math.sqrt(width)];
  const share = (/** @type {{ before: number, after: number }} */ word) => (was ? word.before : word.after);
  const weight = (/** @type {string} */ head, /** @type {number} */ t, /** @type {number} */ s) => {
    const [layer, number] = head.split(".").map(Number);
    return maps[layer][(number * count + t) * count + s];
  };
  const words = answer.words || [];
  const largest = Math.max(...softmax(scores, rest[0] ? Number(rest[0]) : 1 / answer.scale));
  if (name === "w") return weightText(weight(rest[0], Number(rest[1]), Number(rest[2])));
  if (name === "p") {
    const found = words.find(({ id }) => labels[id] === rest[0] || labels[id] === `·${rest[0]}`);
    return found ? probability(share(found)) : "less than those below";
  }
  if (name === "top") return labels[words.reduce((a, b) => (share(b) > share(a) ? b : a)).id];
  if (name === "previous") {
    let sum = 0;
    for (let t = 2; t < count; t++) sum += weight(rest[0], t, t - 1);
    return weightText(sum / (count - 2));
  }
  if (name === "sum") {
    const [t, head] = [Number(rest[1]), rest[0]];
    return weightText(ids.reduce((sum, _, s) => sum + weight(head, t, s), 0));
  }
  if (name === "token") return labels[ids[Number(rest[0])]];
  if (name === "dot") return scoreText(scores[key ?? 0], root);
  if (name === "max") return weightText(largest);
  if (name === "shifted") return weightText(Math.max(...softmax(scores, 1 / answer.scale, Number(rest[0]))));
  if (name === "slope") return weightText(largest * (1 - largest));
  if (name === "width") return String(width);
  if (name === "sqrt") return fixed(root, 2);
  if (name === "random") return fixed(spread(productsOf(width)) / (rest[0] ? root : 1), 2);
  if (name === "spread") return fixed(outputs(Number(rest[1]))[Number(rest[0]) - 1].spread, 2);
  throw new Error(`no figure ${name}`);
}
