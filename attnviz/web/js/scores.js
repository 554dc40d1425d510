/** Decimals of scores at most, fewer where not so many are known. */
const MOST_DECIMALS = 3;

/** How many decimals are known of a number that can be off by so much. @param {number} off */
function decimals(off) {
  return off > 0 ? Math.min(MOST_DECIMALS, Math.max(0, Math.floor(-Math.log10(2 * off)))) : MOST_DECIMALS;
}

/** @param {number} value @param {number} [off] how far it can be off */
export function signed(value, off = 0) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const text = Math.abs(value).toFixed(decimals(off));
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}

/** A number that is not negative. @param {number} value @param {number} [off] how far it can be off */
export function plain(value, off = 0) {
  const text = value.toFixed(decimals(off));
  if (value === 0 || Number(text) > 0) return text;
  return off > 0 ? `<${10 ** -decimals(off)}` : value.toExponential(1).replace("-", "−");
}
