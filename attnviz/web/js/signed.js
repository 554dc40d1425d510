/**
 * The colour of a change: from that of nothing towards that of less or of more.
 * @param {string[]} ends colours `#rrggbb` of less, nothing and more
 * @param {number} share of the largest change, from -1 to 1
 * @returns {[number, number, number]}
 */
export function changeColor([less, none, more], share) {
  const far = Math.min(1, Math.abs(share));
  /** @param {number} n */
  const part = (n) => {
    const [from, to] = [none, share > 0 ? more : less].map((color) => parseInt(color.slice(n, n + 2), 16));
    return Math.round(from + (to - from) * far);
  };
  return [part(1), part(3), part(5)];
}
