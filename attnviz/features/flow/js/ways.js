/** @typedef {import("./types.js").Line} Line */
/** @typedef {import("./types.js").Node} Node */
/** @typedef {import("./types.js").Shares} Shares */

/**
 * What reached a node, layer by layer.
 * @param {Shares[]} steps
 * @param {number} count tokens
 * @param {Node} node
 * @param {number} least share of a line that is kept
 * @param {Line[]} lines gets the lines
 * @returns {Float32Array} its shares of the tokens
 */
export function back(steps, count, { layer, nodes }, least, lines) {
  let now = new Float32Array(count);
  for (const node of nodes) now[node] = 1 / nodes.length;
  for (let step = layer - 1; step >= 0; step -= 1) {
    const next = new Float32Array(count);
    for (let i = 0; i < count; i += 1) {
      if (!now[i]) continue;
      for (let j = 0; j < count; j += 1) {
        const share = now[i] * steps[step][i * count + j];
        next[j] += share;
        if (share >= least) lines.push([share, step, j, i]);
      }
    }
    now = next;
  }
  return now;
}

/**
 * Where a node goes, layer by layer.
 * @param {Shares[]} steps
 * @param {number} count tokens
 * @param {Node} node
 * @param {number} least share of a line that is kept
 * @param {Line[]} lines gets the lines
 * @returns {Float32Array} what every position has of it in the end
 */
export function onward(steps, count, { layer, nodes }, least, lines) {
  let now = new Float32Array(count);
  for (const node of nodes) now[node] = 1;
  for (let step = layer; step < steps.length; step += 1) {
    const next = new Float32Array(count);
    for (let i = 0; i < count; i += 1) {
      for (let j = 0; j < count; j += 1) {
        const share = steps[step][i * count + j] * now[j];
        next[i] += share;
        if (share >= least) lines.push([share, step, j, i]);
      }
    }
    now = next;
  }
  return now;
}

/**
 * Every line of every layer.
 * @param {Shares[]} steps
 * @param {number} count tokens
 * @param {number} least share of a line that is kept
 */
export function all(steps, count, least) {
  /** @type {Line[]} */
  const lines = [];
  steps.forEach((shares, step) => {
    shares.forEach((share, n) => {
      if (share >= least) lines.push([share, step, n % count, Math.floor(n / count)]);
    });
  });
  return lines;
}

/**
 * Rows or columns of a table for the chosen tokens: a mean over rows, a sum over columns.
 * @param {Shares} shares
 * @param {number} count tokens
 * @param {Node} node columns where it lies before the first layer, rows elsewhere
 */
export function taken(shares, count, { layer, nodes }) {
  const found = new Float32Array(count);
  for (const node of nodes) {
    for (let n = 0; n < count; n += 1) {
      found[n] += layer ? shares[node * count + n] / nodes.length : shares[n * count + node];
    }
  }
  return found;
}

/**
 * The least share of the strongest lines from one token to another, so many of them.
 * @param {Shares[]} steps
 * @param {number} count tokens
 * @param {number} most lines
 */
export function strongest(steps, count, most) {
  const moved = steps.flatMap((shares) => [...shares.filter((_, n) => n % count !== Math.floor(n / count))]).sort((a, b) => b - a);
  return moved[most] || 0;
}
