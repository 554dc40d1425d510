import { byId, clamp, fill, make, say } from "./dom.js";
import { windowHeight } from "./embed.js";
import { known } from "./numbers.js";
import { sceneOf } from "./data.js";
import { get, set } from "./store.js";
import { ink, led } from "./colors.js";
import { inkOn, rgb } from "./palette.js";
import { fullOf, matches, pairsTable, panelOf } from "./panel.js";
import { magnified, prepared } from "./painter.js";
import { AXIS, axesData, drawScene, drawTimes, frameCell, overlay, ratioOf } from "./scene.js";
import { ALL, along, gazeOf, largest, nameOf, spotsFor, tintInto } from "./gaze.js";
import { drawHeads, startHeads } from "./sceneheads.js";
import { clicked, pointedAt } from "./token.js";
import { caption, heading } from "./captions.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Token} Token */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").Scene} Scene */
/**
 * @typedef {object} Look what is seen from one token
 * @property {Token} token
 * @property {number[]} tinted the entry of each patch or frame on the axis that is tinted
 * @property {number[]} asking and on that of the token
 * @property {{ values: Float32Array, low: Float32Array, high: Float32Array, full: number, color: string, name: string }[]} layers
 */

const LARGEST = 620;
/** How many weights are named. */
const NAMED = 4;

/** @type {Panel | null} */
let panelNow = null;
/** @type {Token | null} */
let over = null;
/** The tokens that have no place in the scene. @type {HTMLElement[]} */
let chips = [];
let shape = "";
/** Whose picture stands beside it. @type {Scene | null} */
let framedNow = null;
let painting = 0;

/**
 * What is seen: from the token that is pointed at or pinned, or from the usual one.
 * @param {Panel} panel
 * @param {State} state
 * @param {Scene} scene
 * @returns {Look}
 */
function lookOf(panel, state, scene) {
  const { R, C } = panel;
  const { token, tinted, asking } = gazeOf(state, panel, scene, over);
  const layers = panel.layers.map((layer) => {
    const values = along(layer.data, R, C, token, asking);
    const full = state.scale === "one" ? fullOf(state) : largest(values, tinted) || Math.max(...values);
    return { values, full, low: along(layer.low(), R, C, token, asking), high: along(layer.high(), R, C, token, asking), color: layer.color, name: layer.name };
  });
  return { token, tinted, asking, layers };
}

/** @param {Panel} panel @param {string} side */
function axisOf(panel, side) {
  return side === "q" ? panel.queries : panel.keys;
}

/** Where the weight lies, in words. @param {Panel} panel @param {State} state @param {Look} look */
function sentence(panel, state, look) {
  const { token, tinted, layers } = look;
  const other = token.side === "q" ? "k" : "q";
  const mean = token.i === ALL ? "the mean of " : "";
  const verb = state.writes ? (token.side === "q" ? "gets from" : "writes to") : token.side === "q" ? "attends to" : "is attended to by";
  const placed = new Set(tinted);
  const parts = layers.map(({ values, low, high, name, full }) => {
    const order = [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, NAMED).filter((i) => values[i] > 0);
    const top = order.map((i) => `${nameOf(state, panel, { side: other, i })} ${known(low[i], high[i], 2)}`).join(", ");
    let [lowOn, highOn, lowOff, highOff] = [0, 0, 0, 0];
    values.forEach((_, i) => {
      if (placed.has(i)) [lowOn, highOn] = [lowOn + low[i], highOn + high[i]];
      else [lowOff, highOff] = [lowOff + low[i], highOff + high[i]];
    });
    const where = sceneOf(state)?.kind === "sound" ? "the sound" : "patches";
    const part = tinted.length && highOn > 0 ? `${known((100 * lowOn) / (lowOn + highOff || 1), (100 * highOn) / (highOn + lowOff), 2)} % on ${where}; ` : "";
    return `${name}: ${part}${top || "nothing"}${tinted.length && layers.length === 1 ? ` (full colour: ${known(full, full, 2)})` : ""}`;
  });
  return `${mean}${nameOf(state, panel, token)} ${verb} – ${parts.join("; ")}`;
}

/** The colours of tokens without a place. @param {Look} look @param {State} state */
function chipColors({ layers }, state) {
  const paper = rgb(ink().paper);
  const colors = layers.map(({ color }) => rgb(color));
  const shades = layers.map(({ values }) => ({ color: "", data: values, top: 0, rowTops: values, full: fullOf(state) }));
  const full = layers.map((one) => (one.full > 0 ? 1 / one.full : 0));
  /** @param {number} i */
  return (i) => {
    const [red, green, blue] = led(shades, full, i, paper, colors).map(Math.round);
    return { color: `rgb(${red}, ${green}, ${blue})`, ink: inkOn(red, green, blue) };
  };
}

/**
 * The scene with what is seen over it, and a frame around the patches asked about and found.
 * @param {HTMLCanvasElement} canvas
 * @param {Scene} scene
 * @param {Look} look
 * @param {State} state
 * @param {number} w
 * @param {number} h
 */
function drawLook(canvas, scene, { token, tinted, asking, layers }, state, w, h) {
  const painter = prepared(canvas, w, h);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const colors = new Uint8ClampedArray(4 * scene.rows * scene.columns);
  tintInto(colors, 0, layers, tinted, state);
  painter.rect(0, 0, w, h, ink().paper);
  const room = h - (scene.kind === "sound" ? AXIS : 0);
  drawScene(context, scene, tinted.length ? overlay(colors, scene) : null, 0, 0, 0, w, room, painter);
  asking.forEach((i, cell) => {
    if (i === token.i) frameCell(context, scene, cell, w, room, "#ffffff");
  });
  if (scene.kind === "sound") drawTimes(painter, scene, 0, scene.columns, 0, room, w);
}

/** @param {boolean} [passing] only a pointer has moved */
function paint(passing = false) {
  const [panel, state] = [panelNow, get()];
  const scene = sceneOf(state);
  if (!panel || !scene) return;
  const look = lookOf(panel, state, scene);
  const same = panel.queries === panel.keys;
  const canvas = /** @type {HTMLCanvasElement} */ (byId("scene-picture"));
  drawLook(canvas, scene, look, state, canvas.clientWidth, canvas.clientHeight);
  const tint = chipColors(look, state);
  const found = { q: new Set(matches(panel.queries, state.find)), k: new Set(matches(panel.keys, state.find)) };
  for (const chip of chips) {
    const side = /** @type {"q" | "k"} */ (chip.dataset.side);
    const i = Number(chip.dataset.at);
    const tinted = same || side !== look.token.side;
    const own = i === look.token.i && (same || side === look.token.side);
    const { color, ink: letters } = tinted ? tint(i) : { color: "", ink: "" };
    chip.style.background = color;
    chip.style.color = letters;
    chip.setAttribute("aria-pressed", String(own));
    chip.classList.toggle("found", found[side].has(i));
    if (!passing) {
      const weights = tinted ? `, ${look.layers.map(({ low, high }) => known(low[i], high[i], 2)).join(", ")}` : "";
      chip.setAttribute("aria-label", axisOf(panel, side).spoken[i] + weights);
    }
  }
  const said = sentence(panel, state, look);
  byId("scene-said").textContent = said;
  if (!passing) canvas.setAttribute("aria-label", `${scene.name || scene.kind}: ${said}. Shift and arrows go to another ${scene.kind === "sound" ? "frame" : "patch"}.`);
  drawHeads(state, scene, look);
}

/** @param {PointerEvent} event @returns {Token | null} */
function tokenAt(event) {
  const chip = /** @type {HTMLElement} */ (event.target).closest("button");
  if (chip) return { side: chip.dataset.side || "q", i: Number(chip.dataset.at) };
  const scene = sceneOf(get());
  const canvas = byId("scene-picture");
  if (!scene || !panelNow || event.target !== canvas) return null;
  const box = canvas.getBoundingClientRect();
  const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  if (x < 0 || y < 0 || x >= 1 || y >= 1) return null;
  const { side, spots } = placed(scene, panelNow, get());
  const i = spots[Math.floor(y * scene.rows) * scene.columns + Math.floor(x * scene.columns)];
  return i >= 0 ? { side, i } : null;
}

/** The axis that stands in the scene. @param {Scene} scene @param {Panel} panel @param {State} state */
function placed(scene, panel, state) {
  const { tinted: keys, asking: queries } = spotsFor(scene, axesData(state), panel, "q");
  return queries.length ? { side: "q", spots: queries } : { side: "k", spots: keys };
}

export function startScene() {
  const main = byId("scene-main");
  main.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "mouse") return;
    const next = tokenAt(event);
    if (next?.i === over?.i && next?.side === over?.side) return;
    over = next;
    cancelAnimationFrame(painting);
    painting = requestAnimationFrame(() => paint(true));
  });
  main.addEventListener("pointerleave", () => {
    cancelAnimationFrame(painting);
    over = null;
    paint();
  });
  main.addEventListener("click", (event) => {
    const token = tokenAt(/** @type {PointerEvent} */ (event));
    if (token && panelNow) set(clicked(panelNow, get(), token));
  });
  startHeads();
}

/** @param {Panel} panel @param {State} state */
function buildChips(panel, state) {
  const data = axesData(state);
  const same = panel.queries === panel.keys;
  /** @param {string} side */
  const line = (side) => {
    const [axis, { cells }] = [axisOf(panel, side), data[side === "q" ? 0 : 1]];
    return axis.from.flatMap((from, i) => (cells.length && cells[from] !== -1 ? [] : [
      make("button", { type: "button", class: `word${axis.special[i] ? " special" : ""}${axis.written[i] ? " written" : ""}`, "data-side": side, "data-at": i }, make("bdi", {}, axis.inline[i])), " ",
    ]));
  };
  const lines = [line("q"), same ? [] : line("k")];
  const place = byId("scene-chips");
  fill(place, ...lines.filter((one) => one.length).map((one) => make("p", { role: "group", "aria-label": "tokens beside it" }, ...one)));
  chips = [...place.querySelectorAll("button")];
}

/** @param {Scene} scene */
function fit(scene) {
  const body = byId("scene-body");
  const wide = Math.max(200, body.clientWidth);
  const most = scene.kind === "sound" ? wide : Math.min(LARGEST * magnified(), wide < 700 ? wide : wide * 0.52);
  const room = Math.max(260, windowHeight() - 260);
  const w = Math.min(most, scene.kind === "sound" ? most : room / ratioOf(scene));
  const canvas = byId("scene-picture");
  const h = scene.kind === "sound" ? clamp(w * ratioOf(scene), 90, 200 * magnified()) : w * ratioOf(scene);
  canvas.style.width = `${Math.round(w)}px`;
  canvas.style.height = `${Math.round(h)}px`;
  byId("scene-main").style.maxWidth = `${Math.round(w)}px`;
  body.classList.toggle("sound", scene.kind === "sound");
  if (scene === framedNow) return;
  framedNow = scene;
  fill(byId("scene-own"), ...(scene.kind === "sound" ? [] : [
    make("img", { src: scene.source, alt: `the picture as the model saw it${scene.name ? `: ${scene.name}` : ""}` }),
    make("figcaption", { class: "small" }, "as the model saw it"),
  ]));
}

/** @type {import("./types.js").View} */
export const sceneView = {
  draw(state) {
    const scene = sceneOf(state);
    if (!scene) return;
    const panel = panelOf(state, state.on);
    const empty = !panel.R || !panel.C;
    byId("scene-empty").hidden = !empty;
    byId("scene-body").hidden = empty;
    caption("scene-caption", panel, state);
    panelNow = empty ? null : panel;
    over = null;
    byId("text-direction").hidden = !empty && panel.queries !== panel.keys;
    if (empty) return;
    const key = JSON.stringify([state.text, state.kind, state.words, state.separators, state.first, state.quad]);
    if (key !== shape) buildChips(panel, state);
    shape = key;
    fit(scene);
    paint();
  },
  picture(painter, state) {
    const scene = sceneOf(state);
    const panel = panelOf(state, state.on);
    if (!scene || !panel.R || !panel.C) return { width: 10, height: 10 };
    const look = lookOf(panel, state, scene);
    const canvas = make("canvas");
    const w = scene.kind === "sound" ? 760 : 420;
    const h = scene.kind === "sound" ? 120 : w * ratioOf(scene);
    drawLook(canvas, scene, look, state, w, h);
    painter.picture(canvas, 12, 52, w, h);
    let y = h + 72;
    for (const part of sentence(panel, state, look).split("; ")) {
      painter.text(part, 12, y, { size: 11, color: ink().soft });
      y += 16;
    }
    return heading(painter, panel, state, w + 24, y + 6);
  },
  numbers: pairsTable,
  pointed: () => pointedAt(panelNow, get(), over),
  focus: () => byId("scene-picture"),
  step(dx, dy) {
    const state = get();
    const scene = sceneOf(state);
    if (!scene || !panelNow) return;
    const { token } = lookOf(panelNow, state, scene);
    const same = panelNow.queries === panelNow.keys;
    const { side, spots } = placed(scene, panelNow, state);
    const now = token.i !== ALL && (same || token.side === side) ? spots.indexOf(token.i) : -1;
    const at = chips.findIndex((chip) => Number(chip.dataset.at) === token.i && (same || chip.dataset.side === token.side));
    const { rows, columns } = scene;
    const [r, c] = [Math.trunc(now / columns) + dy, (now % columns) + dx];
    /** @type {Token} */
    let next;
    if (now < 0 ? dy <= 0 && at >= 0 : r < 0 && chips.length) {
      const chip = chips[now < 0 ? clamp(at + dx, 0, chips.length - 1) : 0];
      next = { side: chip.dataset.side || "q", i: Number(chip.dataset.at) };
    } else {
      const i = now < 0 ? spots.find((one) => one >= 0) : spots[clamp(r, 0, rows - 1) * columns + clamp(c, 0, columns - 1)];
      if (i === undefined || i < 0) return;
      next = { side, i };
    }
    over = null;
    set({ pin: next.side + axisOf(panelNow, next.side).from[next.i] });
    requestAnimationFrame(() => say(byId("scene-said").textContent || ""));
  },
};

