import { data, keys, LENGTH, queries } from "./data.js";

/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Cells} Cells */

/** Cells along an axis, at most. */
const ACROSS = 160;

/** The whole map. @returns {Part} */
export function whole() {
  return { row: 0, key: 0, side: LENGTH };
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
  const room = Math.ceil(LENGTH / cell) * cell - size;
  const start = (/** @type {number} */ at) => Math.max(0, Math.min(Math.floor(at / cell) * cell, room));
  return { row: start(row), key: start(key), side: size };
}

/**
 * A part of a head's map as cells.
 * @param {import("./types.js").Tiles} tiles
 * @param {import("./types.js").Kept | null} kept where cells are smaller than tiles
 * @param {Part} part
 * @param {boolean} sum
 * @returns {Cells}
 */
export function cells(tiles, kept, part, sum) {
  const cell = cellOf(part.side);
  const rows = Math.ceil(Math.min(part.side, queries.length - part.row) / cell);
  const columns = Math.ceil(Math.min(part.side, keys.length - part.key) / cell);
  const found = { cell, rows, columns, values: new Float32Array(rows * columns), masked: new Uint8Array(rows * columns), covered: 1, below: 0 };
  const { size } = data;
  const [, across] = data.tiles;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const [row, key] = [part.row + r * cell, part.key + c * cell];
      let free = false;
      for (let a = Math.floor(row / size); a * size < Math.min(row + cell, queries.length); a++) {
        for (let b = Math.floor(key / size); b * size < Math.min(key + cell, keys.length); b++) {
          const at = a * across + b;
          free ||= tiles.allowed[at] > 0;
          if (cell < size) continue;
          if (sum) found.values[r * columns + c] += tiles.sums[at];
          else found.values[r * columns + c] = Math.max(found.values[r * columns + c], tiles.largest[at]);
        }
      }
      if (!free || (data.causal && key > row + cell - 1)) found.masked[r * columns + c] = 1;
    }
  }
  if (cell < size && kept) fromRows(found, kept, part, sum);
  if (sum) {
    for (let i = 0; i < found.values.length; i++) {
      const row = part.row + Math.floor(i / columns) * cell;
      found.values[i] /= Math.min(cell, queries.length - row);
    }
  }
  return found;
}

/**
 * Fill cells from the kept weights of rows, and say how much of the rows' weight these are.
 * @param {Cells} found @param {import("./types.js").Kept} kept @param {Part} part @param {boolean} sum
 */
function fromRows(found, kept, part, sum) {
  const end = Math.min(queries.length, part.row + part.side);
  let all = 0;
  for (let row = part.row; row < end; row++) {
    let least = Infinity;
    for (let i = row * data.kept; i < (row + 1) * data.kept; i++) {
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

/**
 * The largest kept weights in a part, the largest first; of each row its largest alone.
 * @param {import("./types.js").Kept} kept @param {number} row @param {number} rows @param {number} key @param {number} across @param {number} most
 * @returns {import("./types.js").Pair[]}
 */
export function strongest(kept, row, rows, key, across, most) {
  const found = [];
  for (let query = row; query < Math.min(queries.length, row + rows); query++) {
    for (let i = query * data.kept; i < (query + 1) * data.kept; i++) {
      const at = kept.keys[i];
      if (at >= key && at < key + across && kept.weights[i] > 0 && query > 0) found.push({ query, key: at, weight: kept.weights[i] });
    }
  }
  return found.sort((a, b) => b.weight - a.weight || a.query - b.query).slice(0, most);
}
