import { shown } from "./dom.js";
import { page } from "./store.js";

/** How many decimals stand of a number that can be off by so much: half a unit of the last one. @param {number} off */
function standing(off) {
  return off > 0 ? Math.max(0, Math.floor(-Math.log10(2 * off))) : Infinity;
}

/** A number that is not negative, with the digits that stand. @param {number} value @param {number} off @param {string} usual */
function cut(value, off, usual) {
  const decimals = standing(off);
  if (value === 0 || decimals >= (usual.split(".")[1] || "").length) return usual;
  const text = value.toFixed(decimals);
  return Number(text) > 0 ? text : `<${10 ** -decimals}`;
}

/** A weight, or a mean of some. @param {number} value */
export function weightText(value) {
  return cut(value, page.errors.weight, shown(value));
}

/** A score, or the product that it comes from: `factor` times as large. @param {number} value @param {number} [factor] */
export function scoreText(value, factor = 1) {
  const text = value.toFixed(Math.min(2, standing(page.errors.score * factor)));
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A probability. @param {number} share */
export function percent(share) {
  const value = 100 * share;
  if (page.errors.share > 0.005) {
    const step = 10 ** Math.ceil(Math.log10(200 * page.errors.share));
    return value < step / 2 ? `<${step} %` : `${(Math.round(value / step) * step).toFixed(0)} %`;
  }
  return value < 0.1 ? "<0.1 %" : `${value.toFixed(value < 10 ? 1 : 0)} %`;
}
