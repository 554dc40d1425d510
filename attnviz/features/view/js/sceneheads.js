import { byId, clamp, fill, make } from "./dom.js";
import { described, headsOf, isLoaded, kindOf, loadAll, sceneOf } from "./data.js";
import { get, set } from "./store.js";
import { ink } from "./colors.js";
import { axesOf } from "./panel.js";
import { magnified, prepared } from "./painter.js";
import { drawScene, overlay, ratioOf } from "./scene.js";
import { gazeOf, nameOf, tintsOf } from "./gaze.js";
import { track } from "./busy.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Scene} Scene */

/** Beyond so many weights in all, the other heads are not drawn. */
const MOST = 30e6;
const [SMALLEST, LARGEST, GAP, SIDE] = [30, 132, 4, 24];
/** How wide the scene is on a card. */
const ONE = 260;

let built = "";
/** @type {{ head: Head, x: number, y: number }[]} */
let tiles = [];
let [wide, high] = [0, 0];

/** @param {State} state @param {Scene} scene */
function build(state, scene) {
  const place = byId("scene-heads");
  const heads = headsOf(state);
  const layers = kindOf(state).sites;
  const across = Math.max(...heads.map(({ data }) => data.index)) + 1;
  const room = place.clientWidth - SIDE;
  const most = LARGEST * magnified() * (scene.kind === "sound" ? 2 : 1);
  const w = clamp(Math.floor(room / across) - GAP, SMALLEST, most);
  const h = Math.max(16, Math.round(w * ratioOf(scene)));
  const key = JSON.stringify([state.text, state.kind, state.writes, w, h]);
  if (key === built) return;
  built = key;
  [wide, high] = [w, h];
  tiles = heads.map((head) => ({ head, x: SIDE + head.data.index * (w + GAP), y: layers.indexOf(head.site) * (h + GAP) }));
  const canvas = make("canvas", { id: "scene-tiles", "aria-hidden": "true" });
  canvas.style.width = `${SIDE + across * (w + GAP)}px`;
  canvas.style.height = `${layers.length * (h + GAP)}px`;
  const buttons = tiles.map(({ head, x, y }) => {
    const button = make("button", { type: "button", class: "tile", tabindex: "-1", "data-head": head.id, "aria-label": described(head), title: described(head) });
    Object.assign(button.style, { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px` });
    return button;
  });
  fill(place, canvas, ...buttons);
}

/**
 * Every head on the same scene, from the same token.
 * @param {State} state
 * @param {Scene} scene that is ready
 * @param {{ token: import("./types.js").Token, tinted: number[], asking: number[] }} look
 */
export function drawHeads(state, scene, look) {
  const heads = headsOf(state);
  const { queries, keys } = axesOf(state);
  const many = heads.length * queries.at.length * keys.at.length > MOST;
  byId("scene-side").hidden = heads.length < 2 || many || !look.tinted.length;
  if (byId("scene-side").hidden) return;
  const missing = kindOf(state).sites.filter((site) => !isLoaded(site));
  if (missing.length) {
    track(loadAll(missing).then(() => {
      if (get() === state && state.view === "scene") drawHeads(state, scene, look);
    }));
    return;
  }
  build(state, scene);
  const canvas = /** @type {HTMLCanvasElement} */ (byId("scene-tiles"));
  const painter = prepared(canvas, canvas.clientWidth, canvas.clientHeight);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const over = overlay(tintsOf(state, heads, scene, look.token, look), scene);
  tiles.forEach(({ head, x, y }, n) => {
    if (!head.row) painter.text(String(head.site.layer), SIDE - 8, y + high / 2, { size: 11, align: "right", color: ink().soft });
    drawScene(context, scene, over, n, x, y, wide, high, painter);
  });
  const on = new Set(state.on);
  for (const button of byId("scene-heads").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(on.has(button.dataset.head || "")));
    button.tabIndex = button.dataset.head === state.head ? 0 : -1;
  }
}

/**
 * One head on the scene, from the token that is pinned or the usual one.
 * @param {HTMLCanvasElement} canvas
 * @param {State} state
 * @param {Head} head whose layer is loaded
 * @returns {string} what is seen; empty where there is no scene, or nothing of it is seen
 */
export function drawOne(canvas, state, head) {
  const scene = sceneOf(state);
  const axes = axesOf(state);
  if (!scene || !axes.queries.at.length || !axes.keys.at.length) return "";
  const look = gazeOf(state, axes, scene, null);
  if (!look.tinted.length) return "";
  const [w, h] = [ONE, Math.round(ONE * ratioOf(scene))];
  const painter = prepared(canvas, w, h);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  drawScene(context, scene, overlay(tintsOf(state, [head], scene, look.token, look), scene), 0, 0, 0, w, h, painter);
  const what = scene.kind === "sound" ? "sound" : "picture";
  return `Over the ${what}: ${look.token.side === "q" ? "from" : "to"} ${nameOf(state, axes, look.token)}`;
}

export function startHeads() {
  byId("scene-heads").addEventListener("click", (event) => {
    const id = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.head;
    if (id) set({ head: id, on: [id] });
  });
}
