import { clamp } from "./dom.js";

// The one writer of numbers: whatever a page shows as a number goes through a function of this module,
// with a minus sign of its own, a space before the percent sign, and no digit that is not known.

/** A number with so many decimals. @param {number} value @param {number} decimals */
export function fixed(value, decimals) {
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** So many, with a comma at every thousand. @param {number} value a whole number */
export function thousands(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** So many of something: `1 query`, `2 queries`. @param {number} value @param {string} noun of one */
export function plural(value, noun) {
  return `${thousands(value)} ${value === 1 ? noun : noun.endsWith("ry") ? `${noun.slice(0, -1)}ies` : `${noun}s`}`;
}

/** A weight: two decimals, three below 0.1, four below 0.01. @param {number} value */
export function shown(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.0001) return value > 0 ? "<0.0001" : ">−0.0001";
  return fixed(value, size < 0.00995 ? 4 : size < 0.0995 ? 3 : 2);
}

/** A change of a weight. @param {number} value */
export function signedWeight(value) {
  return `${value > 0 ? "+" : ""}${shown(value)}`;
}

/** What is added, with its sign and at least two digits that count. @param {number} value */
export function signedText(value) {
  const size = Math.abs(value);
  if (size < 0.00005) return "0";
  return `${value > 0 ? "+" : ""}${fixed(value, size >= 9.995 ? 1 : size >= 0.0995 ? 2 : clamp(1 - Math.floor(Math.log10(size)), 3, 5))}`;
}

/** A figure with two digits that count, and its sign where it is a change. @param {number} value @param {boolean} [sign] */
export function figure(value, sign = false) {
  const size = Math.abs(value);
  if (size < 0.00005) return "0";
  return `${sign && value > 0 ? "+" : ""}${fixed(value, clamp(1 - Math.floor(Math.log10(size)), 0, 4))}`;
}

/** A probability: whole percents, a decimal below ten. @param {number} share */
export function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0 %";
  return Math.abs(value) < 0.1 ? "<0.1 %" : `${fixed(value, Math.abs(value) < 9.95 ? 1 : 0)} %`;
}

/** A share of what was counted, in whole percents. @param {number} share */
export function wholePercent(share) {
  return share > 0 && share < 0.005 ? "<1 %" : `${fixed(100 * share, 0)} %`;
}

/** How many times something is something else. @param {number} ratio */
export function times(ratio) {
  return `×${fixed(ratio, ratio >= 9.95 ? 0 : ratio >= 0.995 ? 1 : 2)}`;
}

/** An interval in brackets behind its number; nothing where it is not known. @param {number | null | undefined} low @param {number | null | undefined} high @param {(value: number) => string} [text] */
export function interval(low, high, text = figure) {
  return typeof low === "number" && typeof high === "number" ? ` [${text(low)}, ${text(high)}]` : "";
}

/** A number of a file: so many digits, and a hyphen for a minus, as programs read it. @param {number} value @param {number} [digits] */
export function filed(value, digits = 6) {
  return String(Number(value.toPrecision(digits)));
}

/** Decimals of scores at most, fewer where not so many are known. */
const MOST_OF_SCORES = 3;

/** How many decimals stand of a number that can be off by so much: half a unit of the last one. @param {number} off */
export function standing(off) {
  return off > 0 ? Math.max(0, Math.floor(-Math.log10(2 * off))) : Infinity;
}

/** A score with its sign. @param {number} value @param {number} [off] how far it can be off */
export function signed(value, off = 0) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const text = fixed(value, Math.min(MOST_OF_SCORES, standing(off)));
  return value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

/** A number that is not negative. @param {number} value @param {number} [off] how far it can be off */
export function plain(value, off = 0) {
  const decimals = Math.min(MOST_OF_SCORES, standing(off));
  const text = fixed(value, decimals);
  if (value === 0 || Number(text) > 0) return text;
  return off > 0 ? `<${10 ** -decimals}` : value.toExponential(1).replace("-", "−");
}

/** Nobody reads more decimals than these. */
const MOST_DECIMALS = 6;

/**
 * A weight that is known to lie between two bounds: the digits that both round to, at least two of
 * them; else the middle, alone to the last digit that is more than lies between them (`0.37`), where
 * it has fewer than two with how far it can be off (`3 ± 2`); of what may be nothing a bound (`<0.004`).
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
  const sure = Math.min(usual, Math.ceil(-Math.log10(high - low)) - 1);
  const alone = sure >= 0 && low >= half ? ((low + high) / 2).toFixed(sure) : "0";
  if (Number(alone) !== 0 && (sure >= 2 || significant(alone) >= 2)) return alone;
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
