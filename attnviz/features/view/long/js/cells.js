import { data, KEYS, LENGTH, ROWS } from "./data.js";
import { MASKED } from "./masked.js";

/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Cells} Cells */
/** @typedef {import("./types.js").Kept} Kept */
/** @typedef {import("./types.js").Pair} Pair */

/** Cells along an axis, at most. */
const ACROSS = 160;

/** The whole map. @returns {Part} */
export function whole() {
  return { row: ROWS.from, key: KEYS.from, side: LENGTH };
}

/** Tokens along a cell of a part: a power of two, and of the whole map a tile at least. @param {number} side */
export function cellOf(side) {
  let cell = side >= LENGTH ? data.size : 1;
  while (side / cell > ACROSS) cell *= 2;
  return cell;
}

/** A part that begins and ends with cells, inside the map. @param {Part} part @returns {Part} */
export function snapped({ row, key, side }) {
  const wanted = Math.min(LENGTH, Math.max(8, Math.round(side)));
  const cell = cellOf(wanted);
  const size = Math.ceil(wanted / cell) * cell;
  const start = (/** @type {number} */ at, /** @type {{ from: number, to: number }} */ { from, to }) => {
    const room = Math.ceil((to - from) / cell) * cell - size;
    return from + Math.max(0, Math.min(Math.floor((at - from) / cell) * cell, room));
  };
  return { row: start(row, ROWS), key: start(key, KEYS), side: size };
}

/**
 * A part of a head's map as cells.
 * @param {import("./types.js").Tiles} tiles
 * @param {Kept | null} kept where cells are smaller than tiles
 * @param {Part} part
 * @param {boolean} sum
 * @returns {Cells}
 */
export function cells(tiles, kept, part, sum) {
  const cell = cellOf(part.side);
  const rows = Math.ceil(Math.min(part.side, ROWS.to - part.row) / cell);
  const columns = Math.ceil(Math.min(part.side, KEYS.to - part.key) / cell);
  const found = { cell, rows, columns, values: new Float32Array(rows * columns), masked: new Uint8Array(rows * columns), covered: 1, below: 0 };
  const { size } = data;
  const [, across] = data.tiles;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const [row, key] = [part.row + r * cell, part.key + c * cell];
      let free = false;
      let leftOut = false;
      for (let a = Math.floor((row - ROWS.from) / size); ROWS.from + a * size < Math.min(row + cell, ROWS.to); a++) {
        for (let b = Math.floor((key - KEYS.from) / size); KEYS.from + b * size < Math.min(key + cell, KEYS.to); b++) {
          const at = a * across + b;
          free ||= tiles.allowed[at] === 1;
          leftOut ||= tiles.allowed[at] === 2;
          if (cell < size) continue;
          if (sum) found.values[r * columns + c] += tiles.sums[at];
          else found.values[r * columns + c] = Math.max(found.values[r * columns + c], tiles.largest[at]);
        }
      }
      const later = data.causal && key > row + cell - 1;
      if (!free || later) found.masked[r * columns + c] = leftOut && !later ? MASKED.selected : MASKED.allowed;
    }
  }
  if (cell < size && kept) fromRows(found, kept, part, sum);
  if (sum) {
    for (let i = 0; i < found.values.length; i++) {
      const row = part.row + Math.floor(i / columns) * cell;
      found.values[i] /= Math.min(cell, ROWS.to - row);
    }
  }
  return found;
}

/**
 * Fill cells from the kept weights of rows, and say how much of the rows' weight these are.
 * @param {Cells} found @param {Kept} kept @param {Part} part @param {boolean} sum
 */
function fromRows(found, kept, part, sum) {
  const end = Math.min(ROWS.to, part.row + part.side);
  let all = 0;
  for (let row = part.row; row < end; row++) {
    let least = Infinity;
    for (let i = first(row); i < first(row + 1); i++) {
      if (kept.keys[i] < 0) {
        least = 0; // the row has no more
        continue;
      }
      all += kept.weights[i];
      least = Math.min(least, kept.weights[i]);
      const c = Math.floor((kept.keys[i] - part.key) / found.cell);
      if (c < 0 || c >= found.columns) continue;
      const at = Math.floor((row - part.row) / found.cell) * found.columns + c;
      found.values[at] = sum ? found.values[at] + kept.weights[i] : Math.max(found.values[at], kept.weights[i]);
    }
    found.below = Math.max(found.below, least);
  }
  found.covered = all / Math.max(1, end - part.row);
}

/** Where the kept weights of a row begin. @param {number} row its position */
export function first(row) {
  return (row - ROWS.from) * data.kept;
}

/** @param {Pair} a @param {Pair} b */
const larger = (a, b) => b.weight - a.weight || a.query - b.query || a.key - b.key;

/**
 * The largest kept weights in a part, the largest first, without the first token's row, which has no choice.
 * @param {Kept} kept @param {number} row @param {number} rows @param {number} key @param {number} across @param {number} most
 * @param {boolean} [rest] whether weights on the first token, where heads rest, count
 * @returns {Pair[]}
 */
export function strongest(kept, row, rows, key, across, most, rest = true) {
  /** @type {Pair[]} */
  let found = [];
  let least = 0;
  for (let query = Math.max(row, 1); query < Math.min(ROWS.to, row + rows); query++) {
    for (let i = first(query); i < first(query + 1); i++) {
      const at = kept.keys[i];
      if (at < key || at >= key + across || kept.weights[i] <= least || (!rest && at === 0)) continue;
      found.push({ query, key: at, weight: kept.weights[i] });
      if (found.length > 40 * most) {
        found = found.sort(larger).slice(0, most);
        least = found[most - 1].weight;
      }
    }
  }
  return found.sort(larger).slice(0, most);
}

/** How many of some rows have their largest weight on the first token. @param {Kept} kept @param {number} row @param {number} rows */
export function resting(kept, row, rows) {
  let count = 0;
  for (let query = row; query < Math.min(ROWS.to, row + rows); query++) {
    let at = first(query);
    for (let i = at + 1; i < first(query + 1); i++) if (kept.weights[i] > kept.weights[at]) at = i;
    count += Number(kept.keys[at] === 0);
  }
  return count;
}
