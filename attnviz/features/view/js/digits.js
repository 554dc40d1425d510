import { clamp } from "./dom.js";

/** Nobody reads more decimals than these. */
const MOST_DECIMALS = 6;

/**
 * A weight that is known to lie between two bounds: the digits that both round to, at least two of
 * them; else the middle and how far it can be off (`0.374 ± 0.003`), or a bound alone (`<0.004`).
 * @param {number} low
 * @param {number} high
 * @param {number} [most] significant digits
 */
export function known(low, high, most = 4) {
  if (high === 0) return "0";
  const usual = decimalsOf(high, most);
  for (let decimals = usual; decimals >= 0; decimals--) {
    const text = low.toFixed(decimals);
    if (text === high.toFixed(decimals) && Number(text) !== 0 && (low === high || significant(text) >= 2)) return text;
  }
  const half = (high - low) / 2;
  const middle = shortened(low, high, MOST_DECIMALS);
  // of what may be almost nothing the bound alone
  if (half === 0 || low < half || Number(middle) === 0) return `<${upward(Math.max(high, 10 ** -MOST_DECIMALS), 1)}`;
  return `${middle} ± ${upward(half + Math.abs((low + high) / 2 - Number(middle)), 1)}`;
}

/**
 * The middle of two bounds, to the first decimal of how far it can be off.
 * @param {number} low
 * @param {number} high
 * @param {number} most decimals
 */
export function shortened(low, high, most) {
  const half = (high - low) / 2;
  return ((low + high) / 2).toFixed(half > 0 ? Math.min(most, Math.max(0, -Math.floor(Math.log10(half)))) : most);
}

/** How many decimals give so many significant digits. @param {number} value @param {number} digits */
export function decimalsOf(value, digits) {
  return clamp(digits - 1 - Math.floor(Math.log10(value)), 0, MOST_DECIMALS);
}

/**
 * A number to so many decimals, as all of a ranking have them, and how far it can be off where these
 * show it.
 * @param {number} low
 * @param {number} value
 * @param {number} high
 * @param {number} decimals
 */
export function toDecimals(low, value, high, decimals) {
  const text = value.toFixed(decimals);
  if (high > 0 && Number(text) === 0) return `<${10 ** -decimals}`;
  const off = Math.max(high - value, value - low);
  return off > 10 ** -decimals ? `${text} ± ${upward(off + 0.5 * 10 ** -decimals, 1)}` : text;
}

/** How many significant digits a number is written with. @param {string} text */
function significant(text) {
  return text.replace(/^0\.0*|\./g, "").length;
}

/**
 * A difference that lies between two bounds: with its sign, or how far from nothing it can be.
 * @param {number} low
 * @param {number} high
 * @param {number} [most] significant digits
 */
export function knownChange(low, high, most = 4) {
  if (low > 0) return `+${known(low, high, most)}`;
  if (high < 0) return `−${known(-high, -low, most)}`;
  const far = Math.max(-low, high);
  return far > 0 ? `±${upward(far, 1)}` : "0";
}

/**
 * A bound with so many significant digits, rounded up, without an exponent.
 * @param {number} value
 * @param {number} digits
 */
export function upward(value, digits) {
  if (value === 0) return "0";
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(value)));
  const unit = 10 ** decimals;
  return (Math.ceil(value * unit * (1 - 1e-12)) / unit).toFixed(decimals);
}

/**
 * A weight and how far it can be off, to the decimals of the latter's two digits: for files.
 * @param {number} low
 * @param {number} high
 * @returns {[string, string]}
 */
export function withError(low, high) {
  const half = (high - low) / 2;
  if (half === 0) return [String(Number(low.toPrecision(7))), "0"];
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(half)));
  const middle = ((low + high) / 2).toFixed(decimals);
  return [middle, upward(half + 0.5 * 10 ** -decimals, 2)];
}
