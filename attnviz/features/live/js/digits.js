import { figure, fixed, percent, shown, standing } from "./numbers.js";
import { page } from "./store.js";

// numbers of the pass, with the digits that stand in spite of how its weights are stored

/** A weight, or a mean of some. @param {number} value */
export function weightText(value) {
  const [text, decimals] = [shown(value), standing(page.errors.weight)];
  if (value === 0 || decimals >= (text.split(".")[1] || "").length) return text;
  const cut = fixed(value, decimals);
  return Number(cut) > 0 ? cut : `<${10 ** -decimals}`;
}

/** A score, or the product that it comes from: `factor` times as large. @param {number} value @param {number} [factor] */
export function scoreText(value, factor = 1) {
  return fixed(value, Math.min(2, standing(page.errors.score * factor)));
}

/** A probability. @param {number} share */
export function probability(share) {
  const { share: off } = page.errors;
  if (off <= 0.0005) return percent(share);
  const step = 10 ** Math.ceil(Math.log10(200 * off));
  const value = 100 * share;
  return value < step / 2 ? `<${step} %` : `${fixed(Math.round(value / step) * step, 0)} %`;
}

/** A norm; about, where storing the weights moved anything, for how far norms moved is not measured. @param {number} value */
export function normText(value) {
  return `${page.errors.weight ? "≈ " : ""}${figure(value)}`;
}
