import { byId } from "./dom.js";
import { inflate } from "./inflate.js";
import { ramp } from "./palette.js";

/** @typedef {import("./types.js").Tiles} Tiles */
/** @typedef {import("./types.js").Kept} Kept */

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");

export const colors = ramp(data.palette);
export const queries = data.queries;
export const keys = data.keys || data.queries;
/** The positions that the page has maps of: the first, and the one after the last. */
export const ROWS = { from: data.part[0], to: data.part[1] };
export const KEYS = { from: data.part[2], to: data.part[3] };
/** Tokens of the longer side. */
export const LENGTH = Math.max(ROWS.to - ROWS.from, KEYS.to - KEYS.from);

/** @type {Map<number, Promise<Uint8Array>>} */
const masks = new Map();
/** @type {Map<number, Promise<Tiles>>} */
const tiles = new Map();
/** @type {Map<number, Promise<Kept>>} */
const rows = new Map();

/** @template T @param {Map<number, Promise<T>>} known @param {number} n @param {() => Promise<T>} make */
function once(known, n, make) {
  const found = known.get(n) || make();
  known.set(n, found);
  return found;
}

/** @param {Uint8Array} codes @param {number} top @param {number} from @param {number} count */
function read(codes, top, from, count) {
  const out = new Float32Array(count);
  for (let i = 0; i < count; i++) out[i] = top * (codes[from + i] / 255) ** 2;
  return out;
}

/** The tiles of a head. @param {number} n */
export function tilesOf(n) {
  return once(tiles, n, async () => {
    const head = data.heads[n];
    const [raw, allowed] = await Promise.all([inflate(head.tiles), once(masks, head.mask, () => inflate(data.masks[head.mask]))]);
    const count = raw.length / 2;
    return { largest: read(raw, head.top, 0, count), sums: read(raw, head.most, count, count), allowed };
  });
}

/** What is kept of a head's rows; of the heads looked at last. @param {number} n */
export function keptOf(n) {
  for (const other of [...rows.keys()].slice(0, -8)) rows.delete(other);
  return once(rows, n, async () => {
    const head = data.heads[n];
    const raw = await inflate(head.rows);
    const count = raw.length / 3;
    const found = new Int32Array(count);
    for (let i = 0; i < count; i++) {
      const back = (raw[i] << 8) | raw[count + i];
      const row = ROWS.from + Math.floor(i / data.kept);
      found[i] = raw[2 * count + i] ? (row - back) & 0xffff : -1;
    }
    return { keys: found, weights: read(raw, head.top, 2 * count, count) };
  });
}

/** How much of a head's weight goes far back, and its largest weight off the first tile. @param {Tiles} found */
export function reach({ largest, sums }) {
  const [down, across] = data.tiles;
  let far = 0;
  let top = 0;
  for (let r = 0; r < down; r++) {
    for (let c = KEYS.from ? 0 : 1; c < across; c++) {
      const apart = Math.abs(ROWS.from - KEYS.from + (r - c) * data.size);
      if (apart > queries.length / 4) far += sums[r * across + c];
      top = Math.max(top, apart < data.size ? 0 : largest[r * across + c]);
    }
  }
  return { far: far / (ROWS.to - ROWS.from), top };
}
