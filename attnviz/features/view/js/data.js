import { byId, clamp } from "./dom.js";
import { plural } from "./numbers.js";
import { inflate } from "./inflate.js";
import { reaches } from "./masked.js";

/** @typedef {import("./types.js").SiteData} SiteData */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").State} State */

/** @type {import("./types.js").Page} */
export const page = JSON.parse(byId("data").textContent || "");

export const roleOf = new Map(page.roles.map((role) => [role.name, role]));

const steps = 2 ** page.bits - 1;

/** @type {Map<number, Uint8Array>} */
const unpacked = new Map();
/** @type {Map<number, Promise<void>>} */
const waiting = new Map();
/** What every code stands for, as a share of the head's largest weight, by shift. @type {Map<number, Float64Array>} */
const shares = new Map();

/** The role that a head's tile shows: what it does, else where it rests; legends count these. @param {Head} head */
export function signOf(head) {
  return head.data.roles[0]?.name || "";
}

/** More heads than these are not shown all at once: the strongest come first. */
export const MANY = 512;
const LISTED = 100;

/** Whether only the strongest heads of very many are shown. @param {State} state */
export function isFolded(state) {
  return !state.every && headsOf(state).length > MANY;
}

/**
 * What a list shows of all heads in order: the first, where there are very many.
 * @template T
 * @param {State} state
 * @param {T[]} ranked
 */
export function firstOf(state, ranked) {
  return isFolded(state) ? ranked.slice(0, LISTED) : ranked;
}

/** The chunks that a layer needs: its maps, and which keys are allowed. @param {SiteData} site */
function chunksOf({ chunk, reach }) {
  return [chunk, ...(reach?.bits ? [reach.bits.chunk] : []), ...(reach?.unselected != null ? [reach.unselected] : [])];
}

/** @param {SiteData} site */
export function isLoaded(site) {
  return chunksOf(site).every((chunk) => unpacked.has(chunk));
}

/** Unpack the maps of one layer, once. @param {SiteData} site */
export async function load(site) {
  await Promise.all(chunksOf(site).map((chunk) => {
    let found = waiting.get(chunk);
    if (!found) {
      found = inflate(byId(`maps-${chunk}`).textContent || "").then((bytes) => { unpacked.set(chunk, bytes); });
      waiting.set(chunk, found);
    }
    return found;
  }));
}

/**
 * What the codes stand for, as shares of the head's largest weight.
 * @param {number} shift -0.5 and 0.5 give the bounds of what was rounded to each
 */
function sharesOf(shift) {
  let found = shares.get(shift);
  if (!found) shares.set(shift, found = Float64Array.from({ length: steps + 1 }, (_, code) => (clamp(code + shift, 0, steps) / steps) ** 2));
  return found;
}

/** The codes of a layer that is loaded: of 16 bits, the low ones begin at `low`. @param {SiteData} site */
function codesOf(site) {
  const bytes = unpacked.get(site.chunk);
  if (!bytes) throw new Error(`layer ${site.layer} is not unpacked yet`);
  return { bytes, low: page.bits === 16 ? bytes.length / 2 : 0 };
}

/**
 * The weights [T, S] of one head of a layer that is loaded.
 * @param {SiteData} site
 * @param {number} row which of the site's heads
 * @param {number} rows T
 * @param {number} columns S
 * @param {number} [shift] -0.5 for the least that each can have been, 0.5 for the largest
 */
export function weights(site, row, rows, columns, shift = 0) {
  const { bytes, low } = codesOf(site);
  const out = new Float32Array(rows * columns);
  const size = site.causal ? (rows * (rows + 1)) / 2 : rows * columns;
  const { top } = site.heads[row];
  const values = sharesOf(shift);
  let from = row * size;
  for (let r = 0; r < rows; r++) {
    const end = r * columns + (site.causal ? r + 1 : columns);
    for (let i = r * columns; i < end; i++, from++) {
      out[i] = top * values[low ? bytes[from] * 256 + bytes[low + from] : bytes[from]];
    }
  }
  return out;
}

/**
 * The weights [S] of one query of a head; see `weights`.
 * @param {SiteData} site
 * @param {number} row which of the site's heads
 * @param {number} query
 * @param {number} columns S
 * @param {number} [shift]
 */
export function rowWeights(site, row, query, columns, shift = 0) {
  const { bytes, low } = codesOf(site);
  const size = (low || bytes.length) / site.heads.length;
  const from = row * size + (site.causal ? (query * (query + 1)) / 2 : query * columns);
  const { top } = site.heads[row];
  const values = sharesOf(shift);
  const out = new Float32Array(columns);
  for (let s = 0, end = site.causal ? query + 1 : columns; s < end; s++) {
    out[s] = top * values[low ? bytes[from + s] * 256 + bytes[low + from + s] : bytes[from + s]];
  }
  return out;
}

/** The packed bits of the keys that a layer's queries may attend to, and of those not selected. @param {SiteData} site that is loaded */
export function reachBits({ reach }) {
  const parts = [reach?.bits?.chunk, reach?.unselected].map((chunk) => (chunk != null && unpacked.get(chunk)) || new Uint8Array());
  return Uint8Array.from([...parts[0], ...parts[1]]);
}

/**
 * Whether a layer's indexer left out a key that a query could have seen; null where none selects.
 * @param {SiteData} site that is loaded
 * @param {number} S keys
 * @returns {((query: number, key: number) => boolean) | null}
 */
export function unselectedIn({ reach }, S) {
  const bits = reach?.unselected != null ? unpacked.get(reach.unselected) : null;
  return bits ? (query, key) => Boolean((bits[(query * S + key) >> 3] >> (7 - ((query * S + key) & 7))) & 1) : null;
}

/**
 * Whether a query of a head may attend to a key; null where each may attend to all, or nothing is known.
 * @param {SiteData} site that is loaded
 * @param {number} row which of the site's heads
 * @param {number} T queries
 * @param {number} S keys
 * @returns {((query: number, key: number) => boolean) | null}
 */
export function allowedIn({ reach }, row, T, S) {
  if (!reach || !(reach.causal || reach.window !== null || reach.bits)) return null;
  if (!reach.bits) return (query, key) => reaches(reach, query + S - T - key);
  const { chunk, each } = reach.bits;
  const bits = /** @type {Uint8Array} */ (unpacked.get(chunk));
  const from = each ? row * T * S : 0;
  return (query, key) => {
    const at = from + query * S + key;
    return Boolean((bits[at >> 3] >> (7 - (at & 7))) & 1);
  };
}

/** @param {State} state */
export function itemOf(state) {
  return page.items[state.text];
}

/** @param {State} state */
export function kindOf(state) {
  const { kinds, written } = itemOf(state);
  return kindIn(state.writes && written.length ? written : kinds, state);
}

/** What the tokens shown stand in: a picture or a sound; null where they are a text alone. @param {State} state */
export function sceneOf(state) {
  const { scene, axes } = itemOf(state);
  const { queries, keys } = kindOf(state);
  return scene && (axes[queries].cells.length || axes[keys].cells.length) ? scene : null;
}

/** The same heads by the other quantity, if the page has both. @param {State} state */
export function otherOf(state) {
  return itemOf(state).written.length ? { ...state, writes: !state.writes } : null;
}

/** @param {import("./types.js").KindData[]} kinds @param {State} state */
function kindIn(kinds, state) {
  return kinds.find(({ kind }) => kind === state.kind) || kinds[0];
}

/** @type {Map<object, Head[]>} */
const listed = new Map();

/** The heads of the kind of attention that is shown, layer by layer. @param {State} state @returns {Head[]} */
export function headsOf(state) {
  const kind = kindOf(state);
  let found = listed.get(kind);
  if (!found) {
    found = kind.sites.flatMap((site) => site.heads.map((data, row) => {
      const id = `${site.layer}.${data.index}`;
      const [name, title] = data.called ? [data.called, data.title || ""] : kind.whole ? [`${site.layer}.*`, `layer ${site.layer}`] : [id, `head ${id}`];
      return { id, name, title, place: 0, site, row, data };
    }));
    found.forEach((head, place) => { head.place = place; });
    listed.set(kind, found);
  }
  return found;
}

/** @param {State} state @param {string} id */
export function headOf(state, id) {
  return headsOf(state).find((head) => head.id === id);
}

/** So many of them: heads, or layers where maps are of these. @param {State} state @param {number} count */
export function several(state, count) {
  return plural(count, kindOf(state).whole ? "layer" : "head");
}

/** What a head is called: its number, or that of its layer. @param {State} state @param {string} id */
export function titleOf(state, id) {
  return headOf(state, id)?.title || `head ${id}`;
}

/** @param {SiteData[]} sites */
export function loadAll(sites) {
  return Promise.all(sites.map(load));
}

/** A head in words: its number, what it does and where it rests. @param {Head} head */
export function described(head) {
  const roles = head.data.roles.map(({ said }) => said);
  return `${head.title}, ${roles.length ? roles.join(", ") : "no role"}`;
}
