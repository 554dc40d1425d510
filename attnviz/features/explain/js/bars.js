import { make } from "./dom.js";

/** A value with its sign and three digits. @param {number} value */
export function valueText(value) {
  const text = Number(value.toPrecision(3));
  return text > 0 ? `+${text}` : String(text);
}

/**
 * A bar from nothing to a value.
 * @param {number} value
 * @param {number} low the least value of all, at most 0
 * @param {number} high
 * @param {string[]} ends colours of less, nothing and more
 */
function bar(value, low, high, ends) {
  const span = high - low || 1;
  const fill = make("i", {});
  fill.style.left = `${(100 * (Math.min(value, 0) - low)) / span}%`;
  fill.style.width = `${(100 * Math.abs(value)) / span}%`;
  fill.style.background = value < 0 ? ends[0] : ends[2];
  const zero = make("b", {});
  zero.style.left = `${(-100 * low) / span}%`;
  return make("span", { class: "track" }, fill, zero);
}

/**
 * Values as bars, a row each.
 * @param {[string, number][]} values
 * @param {string[]} ends colours of less, nothing and more
 * @param {string} label
 */
export function bars(values, ends, label) {
  const [low, high] = [Math.min(0, ...values.map(([, value]) => value)), Math.max(0, ...values.map(([, value]) => value))];
  return make("table", { class: "bars", "aria-label": label }, make("tbody", {}, ...values.map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, bar(value, low, high, ends)), make("td", {}, low < 0 ? valueText(value) : String(Number(value.toPrecision(3))))))));
}

/**
 * The difference of the two logits as it is, and without some heads.
 * @param {import("./types.js").Data} data
 * @param {string[]} ends
 */
export function differences(data, ends) {
  return bars(rows(data), ends, `${data.compared}, with all heads and without some`);
}

/** @param {import("./types.js").Data} data @returns {[string, number][]} */
export function rows(data) {
  /** @type {[string, number][]} */
  const all = [["all heads", data.difference]];
  for (const one of data.without) for (const [n, value] of one.values.entries()) all.push([`without ${one.name} (${data.methods[n]})`, value]);
  return all;
}
