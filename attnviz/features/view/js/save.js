import { byId } from "./dom.js";
import { plural } from "./numbers.js";
import { headsOf, itemOf, kindOf, loadAll, page, reachBits, weights } from "./data.js";
import { get } from "./store.js";
import { ink } from "./colors.js";
import { csvOf, download, jsonOf, pngOf, svgOf } from "./download.js";
import { axesOf, pairs, precision } from "./panel.js";
import { booleans, byteArray, floats, integers, npz, texts } from "./npz.js";
import { track } from "./busy.js";
import { tell } from "./frame.js";
import { secondOf, sitesShown } from "./second.js";
import { drawForPaper } from "./map.js";
import { madeLine } from "./made.js";
import { startPaper } from "./paper.js";
import { startShareCard } from "./sharecard.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Axis} Axis */

/** A table of more weights would not open anywhere. */
const MOST_WEIGHTS = 8e6;
/** How wide a map is drawn for a card, which makes it larger. */
const CARD = 400;

/** @param {State} state the heads that are saved, as a file names them */
function named(state) {
  if (state.view === "overview") return "overview";
  if (state.view === "card") return `card-head-${state.head}`;
  if (secondOf(state)) return `compare-${state.head}`;
  return `${state.view}-${state.on.length === 1 ? `head-${state.on[0]}` : `${state.on.length}-heads`}`;
}

/** @param {Blob} blob @param {string} what @param {string} suffix */
function keep(blob, what, suffix) {
  const state = get();
  const { kind: own, quantity } = kindOf(state);
  const kind = (itemOf(state).kinds.length > 1 ? `-${own}` : "") + (quantity === "weights" ? "" : `-${quantity}`);
  download(blob, `attnviz-${what}${kind}.${suffix}`);
}

/** The open view as an SVG. @param {View} view */
export function drawnSvg(view) {
  return svgOf((painter) => view.picture(painter, get()), ink().paper);
}

/** @param {View} view */
async function savePng(view) {
  const blob = await pngOf((painter) => view.picture(painter, get()), ink().paper);
  if (blob) keep(blob, named(get()), "png");
  else tell("The picture is too large; hide some tokens.");
}

/** The weights of every head, over the tokens as shown. */
function allCsv() {
  const state = get();
  const heads = headsOf(state);
  const { queries, keys } = axesOf(state);
  if (heads.length * queries.at.length * keys.at.length > MOST_WEIGHTS) {
    tell(`A table of ${plural(heads.length, "head")} would have more than ${MOST_WEIGHTS / 1e6} million weights; save NPZ, or hide tokens.`);
    return;
  }
  keep(csvOf(pairs({ ...state, mix: "each" }, heads.map(({ id }) => id))), "all-heads", "csv");
}

/** The number of each token's word, from 0; -1 for special tokens. @param {import("./types.js").AxisData} axis */
function wordNumbers({ labels, special, starts }) {
  const first = new Set(starts);
  let word = -1;
  return labels.map((_, i) => {
    if (special[i]) return -1;
    if (first.has(i)) word++;
    return word;
  });
}

/**
 * The weights of every head of the text, whole: the arrays that `attnviz --recorded` reads, where
 * all layers have as many heads; else one array a layer.
 */
async function allNpz() {
  const state = get();
  const item = itemOf(state);
  const { kind, title, sites, queries, keys, quantity, error } = kindOf(state);
  const [T, S] = [queries, keys].map((axis) => item.axes[axis].labels.length);
  /** @type {Record<string, import("./npz.js").NumpyArray>} */
  const arrays = {};
  /** @param {typeof sites} some */
  const stacked = (some) => {
    const maps = some.flatMap((site) => site.heads.map((_, row) => weights(site, row, T, S)));
    const out = new Float32Array(maps.length * T * S);
    maps.forEach((map, i) => out.set(map, i * T * S));
    return out;
  };
  const count = sites[0].heads.length;
  if (sites.every(({ heads }) => heads.length === count)) {
    arrays.attentions = floats(stacked(sites), [sites.length, count, T, S]);
  } else for (const site of sites) arrays[`layer_${site.layer}`] = floats(stacked([site]), [site.heads.length, T, S]);
  const names = headsOf(state).map(({ id }) => id);
  arrays.heads = texts(names, arrays.attentions ? [sites.length, count] : [names.length]);
  for (const [prefix, place] of /** @type {[string, number][]} */ ([["", queries], ...(keys === queries ? [] : [["source_", keys]])])) {
    const axis = item.axes[place];
    arrays[`${prefix}tokens`] = texts(axis.labels.map((label) => label.replace(/^·(?=.)/, " ")), [axis.labels.length]);
    arrays[`${prefix}special`] = booleans(axis.special);
    arrays[`${prefix}separators`] = booleans(axis.separators);
    arrays[`${prefix}segments`] = integers(axis.segments);
    arrays[`${prefix}words`] = integers(wordNumbers(axis));
  }
  // which keys are allowed, as attnviz/models/recorded/validator.py reads it
  const reach = arrays.attentions ? sites.flatMap((site, layer) => (site.reach ? [{
    sites: [[kind, layer]], causal: site.reach.causal, window: site.reach.window, sink: site.reach.sink,
    masks: site.reach.bits ? (site.reach.bits.each ? count : 1) : 0, unselected: site.reach.unselected != null,
  }] : [])) : [];
  if (reach.length) arrays.reach_bits = byteArray(sites.map(reachBits));
  const meta = { ...(reach.length ? { reach } : {}), model: item.model, written: item.axes[queries].written, exactness: `${precision(state)}, saved from a page`, kinds: [kind], title, bits: page.bits, error, quantity };
  arrays.meta = texts([JSON.stringify(meta)], []);
  keep(await npz(arrays), "all-heads", "npz");
}

/** What stands below a figure: heads, model and its hash, what is drawn, text, program. */
function paperCaption() {
  const state = get();
  const { quantity, title } = kindOf(state);
  const [model, program] = madeLine().split(" · ");
  const all = headsOf(state).length;
  const heads = state.view === "overview" ? `All ${plural(all, "head")}` : state.on.length === 1 ? `Head ${state.on[0]}` : plural(state.on.length, "head");
  const what = quantity === "weights" ? "attention weights" : quantity;
  return `${heads} of ${model}, ${title}: ${what} on “${itemOf(state).label}”. ${program}.`;
}

/** The text of a part of a sentence, tokens in quotation marks. @param {Node} part */
function quoted({ nodeName, textContent }) {
  return nodeName === "EM" ? `“${textContent}”` : textContent || "";
}

/** What is said of the head that the page opens on, while it is shown; else what is drawn. */
function headline() {
  const lead = byId("opening").querySelector("button");
  const { head } = get();
  return !byId("opening").hidden && lead?.dataset.head === head ? [...lead.childNodes].map(quoted).join("") : paperCaption().replace(/ [^.]+\.$/, "");
}

/** @param {() => View} current the view that is open */
export function startSave(current) {
  // Explore's map is the figure: its text and all heads have no room in a column
  const draw = (/** @type {import("./drawing.js").Painter} */ painter, /** @type {number} */ width) =>
    (["stage", "map"].includes(get().view) ? drawForPaper(painter, get(), width) : current().picture(painter, get()));
  startPaper({ draw, caption: paperCaption, name: () => `attnviz-${named(get())}-figure`, hand: download });
  startShareCard({ headline, picture: () => (painter) => draw(painter, CARD), name: () => `attnviz-${named(get())}`, hand: download });
  /** @type {Record<string, () => void | Promise<void>>} */
  const ways = {
    "save-png": () => savePng(current()),
    "save-svg": () => keep(new Blob([drawnSvg(current())], { type: "image/svg+xml" }), named(get()), "svg"),
    "save-csv": () => keep(csvOf(current().numbers(get())), named(get()), "csv"),
    "save-json": async () => keep(await jsonOf(current().numbers(get())), named(get()), "json"),
    "save-all-csv": allCsv,
    "save-all-npz": allNpz,
  };
  for (const [id, way] of Object.entries(ways)) {
    byId(id).addEventListener("click", () => {
      const sites = id.includes("-all-") ? kindOf(get()).sites : sitesShown(get());
      track(loadAll(sites).then(way));
    });
  }
}
