import { fromBase64 } from "./inflate.js";
import { filed, fixed } from "./numbers.js";
import { itemOf, kindOf, sceneOf } from "./data.js";
import { ink } from "./colors.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").AxisData} AxisData */
/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").Painter} Painter */

/** How bright the picture stays where no weight lies. */
const DIMMED = 0.75;
const LUMA = [0.299, 0.587, 0.114];
/** The waveform's height, as a part of its width. */
const FLAT = 0.2;
/** The room of a time axis, and that of a number on it. */
export const AXIS = 18;
const TICK = 46;
/** How wide the picture is beside the pointer. */
const FRAMED = 168;

/** Pictures as they are, and grey to be tinted. @type {Map<Scene, { own: HTMLCanvasElement, grey: HTMLCanvasElement }>} */
const grounds = new Map();

/** The axes' data of what is shown: queries, then keys. @param {State} state */
export function axesData(state) {
  const { queries, keys } = kindOf(state);
  const { axes } = itemOf(state);
  return [axes[queries], axes[keys]];
}

/** @param {Scene} scene */
export function isReady(scene) {
  return scene.kind === "sound" || grounds.has(scene);
}

/** @param {number} width @param {number} height */
function blank(width, height) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  return { canvas, context: /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true })) };
}

/** Unpack the picture, once. @param {Scene} scene */
export async function prepareScene(scene) {
  if (isReady(scene) || scene.kind === "sound") return;
  const image = new Image();
  image.src = scene.source;
  await image.decode();
  const [own, grey] = [blank(scene.width, scene.height), blank(scene.width, scene.height)];
  own.context.drawImage(image, 0, 0);
  const pixels = own.context.getImageData(0, 0, scene.width, scene.height);
  const { data } = pixels;
  for (let i = 0; i < data.length; i += 4) {
    const light = (LUMA[0] * data[i] + LUMA[1] * data[i + 1] + LUMA[2] * data[i + 2]) * DIMMED;
    data[i] = data[i + 1] = data[i + 2] = light;
  }
  grey.context.putImageData(pixels, 0, 0);
  grounds.set(scene, { own: own.canvas, grey: grey.canvas });
}

/** Its height as a part of its width. @param {Scene} scene */
export function ratioOf(scene) {
  return scene.kind === "picture" ? scene.height / scene.width : FLAT;
}

/**
 * Which entry of an axis each patch or frame is, or -1; empty where none of them has a place.
 * @param {Scene} scene
 * @param {AxisData} data
 * @param {Axis} axis
 */
export function spotsOf(scene, data, axis) {
  if (!data.cells.length) return [];
  /** @type {number[]} */
  const out = Array(scene.rows * scene.columns).fill(-1);
  axis.from.forEach((from, i) => {
    for (let token = from; token < axis.to[i]; token++) if (data.cells[token] >= 0) out[data.cells[token]] = i;
  });
  return out;
}

/** @param {number} seconds */
function said(seconds) {
  return fixed(Math.max(0, seconds), 2);
}

/**
 * An entry by name: a patch by its row and column, a frame by its time, else the token itself.
 * @param {Scene | null} scene
 * @param {AxisData} data
 * @param {Axis} axis
 * @param {number} i
 * @param {string[]} [names] of all entries
 */
export function placeName(scene, data, axis, i, names = axis.named) {
  const cell = scene && data.cells.length ? data.cells[axis.from[i]] : -1;
  if (!scene || cell < 0) return names[i];
  if (scene.kind === "picture") {
    const row = Math.trunc(cell / scene.columns);
    const { row: first, called } = scene.crops.filter((crop) => crop.row <= row).at(-1) || { row: 0, called: "" };
    return `patch ${called}${row - first},${cell % scene.columns}`;
  }
  return `${said(scene.start + cell * scene.step)}–${said(scene.start + (cell + 1) * scene.step)} s`;
}

/**
 * Where a patch or frame is, as parts of the whole: x, y, width, height.
 * @param {Scene} scene
 * @param {number} cell
 * @returns {[number, number, number, number]}
 */
function boxOf({ rows, columns }, cell) {
  return [(cell % columns) / columns, Math.trunc(cell / columns) / rows, 1 / columns, 1 / rows];
}

/** @type {Map<Scene, Uint8Array>} */
const peaks = new Map();

/** @param {import("./types.js").SoundData} sound */
function peaksOf(sound) {
  let found = peaks.get(sound);
  if (!found) peaks.set(sound, (found = fromBase64(sound.source)));
  return found;
}

/**
 * The waveform of some frames.
 * @param {Painter} painter
 * @param {import("./types.js").SoundData} sound
 * @param {number} from the first frame, and how many; these may be fractions
 * @param {number} count
 * @param {{ x: number, y: number, w: number, h: number, turn?: boolean }} box where; `turn`: time goes down
 * @param {string} color
 * @param {number} [opacity]
 */
export function drawWave(painter, sound, from, count, { x, y, w, h, turn = false }, color, opacity = 1) {
  const values = peaksOf(sound);
  const total = sound.columns * sound.parts;
  const long = turn ? h : w;
  const [middle, half] = turn ? [x + w / 2, w / 2] : [y + h / 2, h / 2];
  const steps = Math.max(1, Math.min(Math.ceil(count * sound.parts), Math.floor(long)));
  for (let n = 0; n < steps; n++) {
    const first = Math.floor((from + (n / steps) * count) * sound.parts);
    const end = Math.max(first + 1, Math.floor((from + ((n + 1) / steps) * count) * sound.parts));
    let [low, high] = [128, 128];
    for (let i = Math.max(0, first); i < Math.min(total, end); i++) {
      low = Math.min(low, values[2 * i]);
      high = Math.max(high, values[2 * i + 1]);
    }
    const [up, down] = [((high - 128) / 127) * half, ((128 - low) / 127) * half];
    const [at, wide] = [(n / steps) * long, long / steps];
    if (turn) painter.rect(middle - down, y + at, Math.max(up + down, 1), wide, color, opacity);
    else painter.rect(x + at, middle - up, wide, Math.max(up + down, 1), color, opacity);
  }
}

/**
 * Round times on an axis of some frames, with where they are as parts of it.
 * @param {import("./types.js").SoundData} sound
 * @param {number} from the first frame, and how many; these may be fractions
 * @param {number} count
 * @param {number} length in pixels
 */
export function ticksOf({ start, step }, from, count, length) {
  const least = (count * step * TICK) / Math.max(length, 1);
  const unit = 10 ** Math.floor(Math.log10(least));
  const apart = unit * (/** @type {number} */ ([1, 2, 5, 10].find((one) => one * unit >= least * (1 - 1e-9))));
  const [first, end] = [start + from * step, start + (from + count) * step];
  const out = [];
  for (let n = Math.ceil(Math.max(0, first) / apart - 1e-9); n * apart <= end + 1e-9; n++) {
    out.push({ at: (n * apart - first) / (end - first), text: filed(n * apart) });
  }
  return out;
}

/**
 * A time axis in seconds under some frames.
 * @param {Painter} painter
 * @param {import("./types.js").SoundData} sound
 * @param {number} from
 * @param {number} count
 * @param {number} x
 * @param {number} y
 * @param {number} w
 */
export function drawTimes(painter, sound, from, count, x, y, w) {
  const color = ink().soft;
  for (const { at, text } of ticksOf(sound, from, count, w)) {
    const wide = painter.measure(`${text} s`, 10.5);
    painter.rect(x + at * w, y, 1, 4, color);
    painter.text(`${text} s`, x + Math.min(Math.max(at * w - wide / 2, 0), w - wide), y + 11, { size: 10.5, color });
  }
}

/**
 * Colours with their opacity, one a patch or frame, ready to be laid over scenes.
 * @param {Uint8ClampedArray} colors of one scene or several, one after the other
 * @param {Scene} scene
 */
export function overlay(colors, { rows, columns }) {
  const high = colors.length / 4 / columns;
  const { canvas, context } = blank(columns, Math.max(high, rows));
  context.putImageData(new ImageData(new Uint8ClampedArray(colors), columns, high), 0, 0);
  return canvas;
}

/**
 * A scene with colours over it; a picture in its own where there are none.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene that is ready
 * @param {HTMLCanvasElement | null} over from `overlay`
 * @param {number} n which scene of it
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {Painter} painter of the same canvas
 */
export function drawScene(context, scene, over, n, x, y, w, h, painter) {
  const { rows, columns } = scene;
  const ground = grounds.get(scene);
  if (ground) {
    context.imageSmoothingEnabled = true;
    context.drawImage(over ? ground.grey : ground.own, x, y, w, h);
  }
  if (over) {
    context.imageSmoothingEnabled = false;
    context.drawImage(over, 0, n * rows, columns, rows, x, y, w, h);
  }
  if (scene.kind === "sound") drawWave(painter, scene, 0, columns, { x, y, w, h }, ink().text, h > 60 ? 0.75 : 0.45);
}

/**
 * The picture with frames around two patches: the one that attends, in white, and the one that is
 * attended to; null where neither is in a picture.
 * @param {State} state
 * @param {number} query
 * @param {number} key
 */
export function framed(state, query, key) {
  const scene = sceneOf(state);
  const ground = scene && grounds.get(scene);
  const cells = axesData(state).map(({ cells }, i) => (cells.length ? cells[i ? key : query] : -1));
  if (!scene || !ground || Math.max(...cells) < 0) return null;
  const { canvas, context } = blank(FRAMED, Math.round(FRAMED * ratioOf(scene)));
  context.drawImage(ground.own, 0, 0, canvas.width, canvas.height);
  cells.forEach((cell, i) => {
    if (cell >= 0) frameCell(context, scene, cell, canvas.width, canvas.height, i ? "#ffd166" : "#ffffff");
  });
  return canvas;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {number} cell
 * @param {number} w of the scene
 * @param {number} h
 * @param {string} color
 */
export function frameCell(context, scene, cell, w, h, color) {
  const [x, y, wide, high] = boxOf(scene, cell);
  for (const [line, shade] of /** @type {[number, string][]} */ ([[4, "#000000"], [2, color]])) {
    context.lineWidth = line;
    context.strokeStyle = shade;
    context.strokeRect(x * w, y * h, wide * w, high * h);
  }
}
