import { byId } from "./dom.js";
import { ink } from "./colors.js";
import { prepared } from "./painter.js";
import { drawMap, geometry, SUMS } from "./cells.js";
import { wavesOf } from "./waves.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./cells.js").Geometry} Geometry */
/** One map on the screen. @typedef {import("./sides.js").Side & { g: Geometry }} Pane */

/** @param {string} name @param {string} part */
export function partOf(name, part) {
  return byId(name === "first" ? `map-${part}` : `${name}-${part}`);
}

/**
 * Draw a map into its frame, as large as the frame and the room below allow.
 * @param {string} name
 * @param {Panel} panel
 * @param {State} state
 * @param {number} room in height
 */
export function drawPane(name, panel, state, room) {
  const frame = partOf(name, "frame");
  const canvas = /** @type {HTMLCanvasElement} */ (partOf(name, "cells"));
  const g = geometry(prepared(canvas, 1, 1), panel, state.zoom, Math.max(frame.clientWidth, 240), room, wavesOf(panel, state));
  frame.style.height = `${g.height}px`;
  const painter = prepared(canvas, g.width, g.height);
  painter.rect(0, 0, g.width, g.height, ink().paper);
  drawMap(painter, panel, state, g, Math.ceil(Math.max(g.plotW, g.plotH) * (devicePixelRatio || 1)));
  canvas.dataset.geometry = JSON.stringify(g);
  canvas.dataset.shape = `${panel.R},${panel.C}`;
  partOf(name, "over").style.touchAction = state.zoom ? "none" : "pan-y pinch-zoom";
  return g;
}

/**
 * Mark rows and columns, each with its opacity; no line goes through labels.
 * @param {Pane} pane
 * @param {[number, number][]} rows
 * @param {[number, number][]} columns
 */
export function crosshair({ name, g }, rows, columns) {
  const painter = prepared(/** @type {HTMLCanvasElement} */ (partOf(name, "over")), g.width, g.height);
  const { mark } = ink();
  const { left, top, plotW, plotH, cw, ch, r0, c0 } = g;
  for (const [r, opacity] of rows) {
    const [from, to] = [Math.max(top, top + (r - r0) * ch), Math.min(top + plotH, top + (r + 1 - r0) * ch)];
    if (r < 0 || to <= from) continue;
    painter.rect(left, from - 1, plotW + SUMS, 1, mark, opacity);
    painter.rect(left, to, plotW + SUMS, 1, mark, opacity);
  }
  for (const [c, opacity] of columns) {
    const [from, to] = [Math.max(left, left + (c - c0) * cw), Math.min(left + plotW, left + (c + 1 - c0) * cw)];
    if (c < 0 || to <= from) continue;
    painter.rect(from - 1, top, 1, plotH + SUMS, mark, opacity);
    painter.rect(to, top, 1, plotH + SUMS, mark, opacity);
  }
}

/**
 * The cell under a point of the drawing, or null.
 * @param {Pane} pane
 * @param {number} x
 * @param {number} y
 * @returns {[number, number] | null}
 */
export function cellAt({ panel, g }, x, y) {
  if (x < g.left || y < g.top || x >= g.left + g.plotW || y >= g.top + g.plotH) return null;
  const [r, c] = [Math.floor(g.r0 + (y - g.top) / g.ch), Math.floor(g.c0 + (x - g.left) / g.cw)];
  return r < panel.R && c < panel.C ? [r, c] : null;
}
