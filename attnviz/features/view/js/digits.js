import { clamp } from "./dom.js";

/** Nobody reads more decimals than these. */
const MOST_DECIMALS = 6;

/**
 * A weight that is known to lie between two bounds: only digits that both bounds round to. With
 * fewer than two of them `≈` stands in front; where there is none, the bounds themselves.
 * @param {number} low
 * @param {number} high
 * @param {number} [most] significant digits
 */
export function known(low, high, most = 4) {
  if (high === 0) return "0";
  const usual = clamp(most - 1 - Math.floor(Math.log10(high)), 0, MOST_DECIMALS);
  for (const decimals of order(usual)) {
    const text = low.toFixed(decimals);
    if (text !== high.toFixed(decimals) || Number(text) === 0) continue;
    return text.replace(/^0\.0*|\./g, "").length < 2 && low !== high ? `≈${text}` : text;
  }
  return low > high / 2 ? between(low, high) : `<${upward(Math.max(high, 10 ** -MOST_DECIMALS), 1)}`;
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
 * The usual number of decimals; more of them, since bounds on two sides of a half agree again one
 * digit further; then fewer.
 * @param {number} usual
 */
function order(usual) {
  const all = Array.from({ length: MOST_DECIMALS + 1 }, (_, decimals) => decimals);
  return [...all.slice(usual), ...all.slice(0, usual).reverse()];
}

/**
 * Two bounds, rounded outwards.
 * @param {number} low
 * @param {number} high
 */
export function between(low, high) {
  const decimals = clamp(-Math.floor(Math.log10(high - low)), 0, MOST_DECIMALS);
  const unit = 10 ** decimals;
  return `${(Math.floor(low * unit) / unit).toFixed(decimals)}–${(Math.ceil(high * unit) / unit).toFixed(decimals)}`;
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
