/**
 * How far the rows of every head have moved: mean Jensen-Shannon distance, base 2, from 0 to 1.
 * Each pass has a room of its own, by the longest text that it has run.
 * @param {import("./network.js").Pass} before
 * @param {import("./network.js").Pass} after
 */
export function changes(before, after) {
  const { heads, layers } = before.model;
  const count = before.ids.length;
  const found = new Float32Array(layers.length * heads);
  for (let number = 0; number < layers.length; number++) {
    for (let head = 0; head < heads; head++) {
      let total = 0;
      for (let t = 0; t < count; t++) {
        const [first, second] = [before, after].map(({ room }) => (head * room + t) * room);
        let divergence = 0;
        for (let s = 0; s < count; s++) {
          const [p, q] = [before.weights[number][first + s], after.weights[number][second + s]];
          if (p === q) continue;
          const middle = (p + q) / 2;
          if (p) divergence += p * Math.log2(p / middle);
          if (q) divergence += q * Math.log2(q / middle);
        }
        total += Math.sqrt(Math.max(0, divergence) / 2);
      }
      found[number * heads + head] = total / count;
    }
  }
  return found;
}
