import { sceneOf } from "./data.js";
import { ink } from "./colors.js";
import { axesData, drawTimes, drawWave, ticksOf } from "./scene.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").Painter} Painter */
/** @typedef {{ sound: import("./types.js").SoundData, first: number, count: number }} Wave an axis of frames: the first one's number, and how many before the sound's end */

/** The room that a waveform takes with its seconds: above a map, and to its left. */
export const ABOVE = 58;
export const LEFT = 88;
/** From the end of a waveform, where its last second may stand, to the middle of the first label behind it. */
export const AFTER_WAVE = 13;
const STRIP = 34;
const GAP = 4;

/**
 * The sound along queries and keys, where these are its frames.
 * @param {Panel} panel
 * @param {State} state
 * @returns {[Wave | null, Wave | null]}
 */
export function wavesOf({ queries, keys }, state) {
  const sound = sceneOf(state);
  if (sound?.kind !== "sound") return [null, null];
  const data = axesData(state);
  const [rows, columns] = [queries, keys].map((/** @type {Axis} */ axis, side) => {
    const cells = axis.from.map((from) => data[side].cells[from] ?? -1);
    const count = cells.filter((cell) => cell >= 0).length;
    const whole = cells.every((cell, i) => (i < count ? cell === cells[0] + i : cell === -2));
    return count > 1 && whole ? { sound, first: cells[0], count } : null;
  });
  return [rows, columns];
}

/**
 * The waveform and its seconds along the sides of a map, over the part of it that is in sight.
 * @param {Painter} painter
 * @param {[Wave | null, Wave | null]} waves
 * @param {import("./cells.js").Geometry} g
 */
export function drawWaves(painter, [rows, columns], g) {
  const color = ink().soft;
  if (columns) {
    const { sound, first, count } = columns;
    const shown = Math.min(count, g.c0 + g.plotW / g.cw) - g.c0;
    if (shown > 0) {
      const [from, w] = [first + g.c0, shown * g.cw];
      drawTimes(painter, sound, from, shown, g.left, g.top - STRIP - GAP - 18, w);
      drawWave(painter, sound, from, shown, { x: g.left, y: g.top - STRIP - GAP, w, h: STRIP }, color);
    }
  }
  if (rows) {
    const { sound, first, count } = rows;
    const shown = Math.min(count, g.r0 + g.plotH / g.ch) - g.r0;
    if (shown > 0) {
      const [from, h] = [first + g.r0, shown * g.ch];
      drawWave(painter, sound, from, shown, { x: g.left - STRIP - GAP, y: g.top, w: STRIP, h, turn: true }, color);
      for (const { at, text } of ticksOf(sound, from, shown, h)) {
        painter.rect(g.left - STRIP - GAP - 5, g.top + at * h, 4, 1, color);
        painter.text(`${text} s`, g.left - STRIP - GAP - 8, Math.max(g.top + at * h, g.top + 6), { size: 10.5, align: "right", color });
      }
    }
  }
}
