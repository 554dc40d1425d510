import { byId, make } from "./dom.js";
import { headsOf, itemOf, kindOf, loadAll, page, weights } from "./data.js";
import { get } from "./store.js";
import { ink } from "./colors.js";
import { canvasPainter, svgPainter } from "./painter.js";
import { axesOf, pairs, precision } from "./panel.js";
import { booleans, floats, integers, npz, texts } from "./npz.js";
import { track } from "./busy.js";
import { tell } from "./frame.js";
import { secondOf, sitesShown } from "./second.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Axis} Axis */

/** No side of a PNG is longer than what browsers can draw. */
const LONGEST = 8000;
/** A table of more weights would not open anywhere. */
const MOST_WEIGHTS = 8e6;

/** @param {State} state the heads that are saved, as a file names them */
function named(state) {
  if (state.view === "overview") return "overview";
  if (state.view === "card") return `card-head-${state.head}`;
  if (secondOf(state)) return `compare-${state.head}`;
  return `${state.view}-${state.on.length === 1 ? `head-${state.on[0]}` : `${state.on.length}-heads`}`;
}

/**
 * @param {Blob} blob
 * @param {string} what
 * @param {string} suffix
 */
function download(blob, what, suffix) {
  const state = get();
  const { kind: own, quantity } = kindOf(state);
  const kind = (itemOf(state).kinds.length > 1 ? `-${own}` : "") + (quantity === "weights" ? "" : `-${quantity}`);
  const link = make("a", { href: URL.createObjectURL(blob), download: `attnviz-${what}${kind}.${suffix}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * The open view as an SVG.
 * @param {View} view
 */
export function drawnSvg(view) {
  const painter = svgPainter();
  const { width, height } = view.picture(painter, get());
  return painter.finish(width, height, ink().paper, document.title);
}

/** @param {View} view */
function savePng(view) {
  const trial = /** @type {CanvasRenderingContext2D} */ (make("canvas").getContext("2d"));
  const size = view.picture(canvasPainter(trial), get());
  const [width, height] = [Math.ceil(size.width), Math.ceil(size.height)];
  const ratio = Math.min(2, LONGEST / width, LONGEST / height);
  const canvas = make("canvas", { width: Math.ceil(width * ratio), height: Math.ceil(height * ratio) });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  context.fillStyle = ink().paper;
  context.fillRect(0, 0, width, height);
  view.picture(canvasPainter(context), get());
  canvas.toBlob((blob) => (blob ? download(blob, named(get()), "png") : tell("The picture is too large; hide some tokens.")), "image/png");
}

/** @param {Iterable<string[]>} lines */
function csv(lines) {
  const parts = [];
  for (const line of lines) parts.push(`${line.map(quoted).join(",")}\r\n`);
  return new Blob(parts, { type: "text/csv;charset=utf-8" });
}

/** @param {string} value */
function quoted(value) {
  return /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}

/** The weights of every head, over the tokens as shown. */
function allCsv() {
  const state = get();
  const heads = headsOf(state);
  const { queries, keys } = axesOf(state);
  if (heads.length * queries.at.length * keys.at.length > MOST_WEIGHTS) {
    tell(`A table of ${heads.length} heads would have more than ${MOST_WEIGHTS / 1e6} million weights; save NPZ, or hide tokens.`);
    return;
  }
  download(csv(pairs({ ...state, mix: "each" }, heads.map(({ id }) => id))), "all-heads", "csv");
}

/**
 * The number of each token's word, from 0; -1 for special tokens.
 * @param {import("./types.js").AxisData} axis
 */
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
  const meta = { model: item.model, written: item.axes[queries].written, exactness: `${precision(state)}, saved from a page`, kinds: [kind], title, bits: page.bits, error, quantity };
  arrays.meta = texts([JSON.stringify(meta)], []);
  download(await npz(arrays), "all-heads", "npz");
}

/** @param {() => View} current the view that is open */
export function startSave(current) {
  /** @type {Record<string, () => void | Promise<void>>} */
  const ways = {
    "save-png": () => savePng(current()),
    "save-svg": () => download(new Blob([drawnSvg(current())], { type: "image/svg+xml" }), named(get()), "svg"),
    "save-csv": () => download(csv(current().numbers(get())), named(get()), "csv"),
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
