import { byId, clamp } from "./dom.js";
import { inflate } from "./inflate.js";

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

/**
 * The role that a head's tile shows: what it does, else where it rests; legends count these.
 * @param {Head} head
 */
export function signOf(head) {
  return head.data.roles[0]?.name || "";
}

/** @param {SiteData} site */
export function isLoaded(site) {
  return unpacked.has(site.chunk);
}

/**
 * Unpack the maps of one layer, once.
 * @param {SiteData} site
 */
export function load(site) {
  let found = waiting.get(site.chunk);
  if (!found) {
    found = inflate(byId(`maps-${site.chunk}`).textContent || "").then((bytes) => {
      unpacked.set(site.chunk, bytes);
    });
    waiting.set(site.chunk, found);
  }
  return found;
}

/**
 * What a code stands for, as a share of the head's largest weight.
 * @param {number} code
 * @param {number} shift -0.5 and 0.5 give the bounds of what was rounded to it
 */
function share(code, shift) {
  return (clamp(code + shift, 0, steps) / steps) ** 2;
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
  const bytes = unpacked.get(site.chunk);
  if (!bytes) throw new Error(`layer ${site.layer} is not unpacked yet`);
  const out = new Float32Array(rows * columns);
  const size = site.causal ? (rows * (rows + 1)) / 2 : rows * columns;
  const top = site.heads[row].top;
  const low = page.bits === 16 ? bytes.length / 2 : 0;
  const values = low ? [] : Float64Array.from({ length: 256 }, (_, code) => top * share(code, shift));
  let from = row * size;
  for (let r = 0; r < rows; r++) {
    const end = r * columns + (site.causal ? r + 1 : columns);
    if (low) {
      for (let i = r * columns; i < end; i++, from++) {
        out[i] = top * share(bytes[from] * 256 + bytes[low + from], shift);
      }
    } else {
      for (let i = r * columns; i < end; i++, from++) out[i] = values[bytes[from]];
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
  const bytes = unpacked.get(site.chunk);
  if (!bytes) throw new Error(`layer ${site.layer} is not unpacked yet`);
  const low = page.bits === 16 ? bytes.length / 2 : 0;
  const size = (low || bytes.length) / site.heads.length;
  const from = row * size + (site.causal ? (query * (query + 1)) / 2 : query * columns);
  const { top } = site.heads[row];
  const out = new Float32Array(columns);
  for (let s = 0, end = site.causal ? query + 1 : columns; s < end; s++) {
    out[s] = top * share(low ? bytes[from + s] * 256 + bytes[low + from + s] : bytes[from + s], shift);
  }
  return out;
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

/**
 * What the tokens shown stand in: a picture or a sound; null where they are a text alone.
 * @param {State} state
 */
export function sceneOf(state) {
  const { scene, axes } = itemOf(state);
  const { queries, keys } = kindOf(state);
  return scene && (axes[queries].cells.length || axes[keys].cells.length) ? scene : null;
}

/**
 * The same heads by the other quantity, if the page has both.
 * @param {State} state
 */
export function otherOf(state) {
  return itemOf(state).written.length ? { ...state, writes: !state.writes } : null;
}

/** @param {import("./types.js").KindData[]} kinds @param {State} state */
function kindIn(kinds, state) {
  return kinds.find(({ kind }) => kind === state.kind) || kinds[0];
}

/** @type {Map<object, Head[]>} */
const listed = new Map();

/**
 * The heads of the kind of attention that is shown, layer by layer.
 * @param {State} state
 * @returns {Head[]}
 */
export function headsOf(state) {
  const kind = kindOf(state);
  let found = listed.get(kind);
  if (!found) {
    found = kind.sites.flatMap((site) => site.heads.map((data, row) => {
      const id = `${site.layer}.${data.index}`;
      const [name, title] = kind.whole ? [`${site.layer}.*`, `layer ${site.layer}`] : [id, `head ${id}`];
      return { id, name, title, place: 0, site, row, data };
    }));
    found.forEach((head, place) => { head.place = place; });
    listed.set(kind, found);
  }
  return found;
}

/**
 * @param {State} state
 * @param {string} id
 */
export function headOf(state, id) {
  return headsOf(state).find((head) => head.id === id);
}

/** So many of them: heads, or layers where maps are of these. @param {State} state @param {number} count */
export function several(state, count) {
  return `${count} ${kindOf(state).whole ? "layers" : "heads"}`;
}

/** What a head is called: its number, or that of its layer. @param {State} state @param {string} id */
export function titleOf(state, id) {
  return headOf(state, id)?.title || `head ${id}`;
}

/** @param {SiteData[]} sites */
export function loadAll(sites) {
  return Promise.all(sites.map(load));
}

/**
 * A head in words: its number, what it does and where it rests.
 * @param {Head} head
 */
export function described(head) {
  const roles = head.data.roles.map(({ said }) => said);
  return `${head.title}, ${roles.length ? roles.join(", ") : "no role"}`;
}
