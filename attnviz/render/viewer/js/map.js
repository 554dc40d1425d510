import { byId, clamp, say } from "./dom.js";
import { sceneOf } from "./data.js";
import { get, MOST_ZOOM, set } from "./store.js";
import { ink } from "./colors.js";
import { otherPanel, pairsTable, panelOf, pinned, weightText } from "./panel.js";
import { prepared } from "./painter.js";
import { drawMap, geometry, margins, sums, SUMS } from "./cells.js";
import { between, known } from "./digits.js";
import { caption, heading } from "./captions.js";
import { askedOf } from "./rank.js";
import { axesData, framed, placeName } from "./scene.js";
import { hideTip, showTip } from "./tip.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Painter} Painter */
/** @typedef {ReturnType<typeof geometry>} Geometry */

/** @type {Panel | null} */
let panelNow = null;
/** @type {Geometry | null} */
let g = null;
/** @type {[number, number] | null} */
let cursor = null;

/**
 * The cell under a point of the drawing, or null.
 * @param {number} x
 * @param {number} y
 * @returns {[number, number] | null}
 */
function cellAt(x, y) {
  if (!g || !panelNow || x < g.left || y < g.top || x >= g.left + g.plotW || y >= g.top + g.plotH) return null;
  const [r, c] = [Math.floor(g.r0 + (y - g.top) / g.ch), Math.floor(g.c0 + (x - g.left) / g.cw)];
  return r < panelNow.R && c < panelNow.C ? [r, c] : null;
}

/** @param {[number, number]} cell */
function pairAt([r, c]) {
  return panelNow ? `q${panelNow.queries.from[r]}k${panelNow.keys.from[c]}` : "";
}

/**
 * The weights of a cell, with their rows' and columns' sums.
 * @param {Panel} panel
 * @param {number} r
 * @param {number} c
 */
function cellLines(panel, r, c) {
  const i = r * panel.C + c;
  const other = otherPanel(panel, get());
  return panel.layers.map(({ name, color, low, high, whole }, l) => {
    const several = panel.layers.length > 1;
    const [text, all] = [weightText(panel, l, i, 4), sums(panel)[l]];
    const row = whole ? "1" : known(all.low.rows[r], all.high.rows[r], 3);
    const range = text.startsWith("≈") ? `${between(low()[i], high()[i])}; ` : "";
    return {
      color: several ? color : "", text: `${several ? `${name}: ` : ""}${text}`,
      more: `${other ? `${other.noun} ${weightText(other, l, i, 3)}; ` : ""}${range}row ${row}, column ${known(all.low.columns[c], all.high.columns[c], 3)}`,
    };
  });
}

/** The crosshair, and the number under it. @param {boolean} [spoken] */
function drawCursor(spoken = false) {
  const overlay = /** @type {HTMLCanvasElement} */ (byId("map-over"));
  if (!g || !panelNow) return;
  const painter = prepared(overlay, g.width, g.height);
  const state = get();
  const pin = pinned(panelNow.queries, state.pin, "q");
  const pinnedKey = pinned(panelNow.keys, state.pin, "k");
  const tones = ink();
  const { left, top, plotW, plotH, cw, ch, r0, c0 } = g;
  /** @param {number} r @param {number} opacity */
  const row = (r, opacity) => {
    const [from, to] = [Math.max(top, top + (r - r0) * ch), Math.min(top + plotH, top + (r + 1 - r0) * ch)];
    if (to <= from) return;
    painter.rect(0, from - 1, left + plotW + SUMS, 1, tones.mark, opacity);
    painter.rect(0, to, left + plotW + SUMS, 1, tones.mark, opacity);
  };
  /** @param {number} c @param {number} opacity */
  const column = (c, opacity) => {
    const [from, to] = [Math.max(left, left + (c - c0) * cw), Math.min(left + plotW, left + (c + 1 - c0) * cw)];
    if (to <= from) return;
    painter.rect(from - 1, 0, 1, top + plotH + SUMS, tones.mark, opacity);
    painter.rect(to, 0, 1, top + plotH + SUMS, tones.mark, opacity);
  };
  const asked = askedOf(state);
  if (asked && asked.r >= 0) row(asked.r, 0.9);
  if (asked && asked.c >= 0) column(asked.c, 0.9);
  if (pin >= 0) row(pin, 0.9);
  if (pinnedKey >= 0) column(pinnedKey, 0.9);
  if (!cursor) {
    hideTip();
    return;
  }
  const [r, c] = cursor;
  row(r, 0.7);
  column(c, 0.7);
  const lines = cellLines(panelNow, r, c);
  const { queries, keys } = panelNow;
  const box = overlay.getBoundingClientRect();
  const [scene, data] = [sceneOf(state), axesData(state)];
  const pair = [placeName(scene, data[0], queries, r), placeName(scene, data[1], keys, c)];
  showTip(pair.join(" → "), lines, box.left + left + (c + 1 - c0) * cw + 10, box.top + top + (r + 1 - r0) * ch + 10, framed(state, queries.from[r], keys.from[c]));
  if (spoken) say(`${placeName(scene, data[0], queries, r, queries.spoken)} to ${placeName(scene, data[1], keys, c, keys.spoken)}: ${lines.map(({ text }) => text).join(", ")}`);
}

/** @param {number} dr @param {number} dc rows and columns to move by */
function pan(dr, dc) {
  if (!g || !panelNow) return;
  const [factor] = (get().zoom || "1,0,0").split(",").map(Number);
  setZoom(factor, g.r0 + dr, g.c0 + dc);
}

/** @param {number} factor @param {number} r @param {number} c */
function setZoom(factor, r, c) {
  if (!panelNow) return;
  const wanted = clamp(factor, 1, MOST_ZOOM);
  const zoom = wanted <= 1.001 ? "" : [wanted, clamp(r, 0, panelNow.R), clamp(c, 0, panelNow.C)].map((value) => value.toFixed(3)).join(",");
  set({ zoom });
}

/**
 * Zoom so that what is under a point stays there.
 * @param {number} by
 * @param {number} x
 * @param {number} y
 */
function zoomAt(by, x, y) {
  if (!g) return;
  const [factor] = (get().zoom || "1,0,0").split(",").map(Number);
  const next = clamp(factor * by, 1, MOST_ZOOM);
  const real = next / factor;
  const [inX, inY] = [clamp(x - g.left, 0, g.plotW), clamp(y - g.top, 0, g.plotH)];
  setZoom(next, g.r0 + inY / g.ch - inY / (g.ch * real), g.c0 + inX / g.cw - inX / (g.cw * real));
}

export function startMap() {
  const overlay = /** @type {HTMLCanvasElement} */ (byId("map-over"));
  /** @type {Map<number, { x: number, y: number }>} */
  const fingers = new Map();
  let moved = 0;
  /** @param {PointerEvent} event */
  const at = (event) => {
    const box = overlay.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  overlay.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, at(event));
    moved = 0;
    if (get().zoom || fingers.size > 1) overlay.setPointerCapture(event.pointerId);
  });
  overlay.addEventListener("pointermove", (event) => {
    const now = at(event);
    const before = fingers.get(event.pointerId);
    if (before && g && (get().zoom || fingers.size > 1)) {
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (fingers.size === 2) {
        const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
        const was = Math.hypot(before.x - other.x, before.y - other.y);
        zoomAt(Math.hypot(now.x - other.x, now.y - other.y) / Math.max(was, 1), (now.x + other.x) / 2, (now.y + other.y) / 2);
      } else pan((before.y - now.y) / g.ch, (before.x - now.x) / g.cw);
      fingers.set(event.pointerId, now);
      return;
    }
    cursor = cellAt(now.x, now.y);
    drawCursor();
  });
  /** @param {PointerEvent} event */
  const up = (event) => {
    fingers.delete(event.pointerId);
    const { x, y } = at(event);
    const cell = cellAt(x, y);
    if (event.type !== "pointerup" || moved > 6 || !panelNow) return;
    cursor = cell;
    if (cell) {
      const pin = `q${panelNow.queries.from[cell[0]]}`;
      if (get().who) set({ pin, who: pairAt(cell) });
      else set({ pin: get().pin === pin ? "" : pin });
    }
    drawCursor();
  };
  overlay.addEventListener("pointerup", up);
  overlay.addEventListener("pointercancel", up);
  overlay.addEventListener("pointerleave", () => {
    cursor = null;
    drawCursor();
  });
  overlay.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !get().zoom) return;
    event.preventDefault();
    const box = overlay.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) zoomAt(Math.exp(-event.deltaY / 200), event.clientX - box.left, event.clientY - box.top);
    else if (g) pan(event.deltaY / g.ch, event.deltaX / g.cw);
  }, { passive: false });
  overlay.addEventListener("dblclick", (event) => {
    const box = overlay.getBoundingClientRect();
    if (get().zoom) set({ zoom: "" });
    else zoomAt(4, event.clientX - box.left, event.clientY - box.top);
  });
}

/** @param {Panel} panel */
function describedMap(panel) {
  let best = 0;
  const { data } = panel.layers[0];
  for (let i = 0; i < data.length; i++) if (data[i] > data[best]) best = i;
  const [r, c] = [Math.trunc(best / panel.C), best % panel.C];
  return `Attention map of ${panel.layers.map(({ name }) => name).join(", ")}: ${panel.R} queries by ${panel.C} keys. ` +
    `Largest ${panel.noun} ${weightText(panel, 0, best)}, ${panel.queries.spoken[r]} to ${panel.keys.spoken[c]}. Shift and arrows read single weights.`;
}

/** @type {import("./types.js").View} */
export const map = {
  draw(state) {
    const frame = byId("map-frame");
    const panel = panelOf(state, state.on);
    const empty = !panel.R || !panel.C;
    byId("map-empty").hidden = !empty;
    frame.hidden = empty;
    caption("map-caption", panel, state);
    if (empty) {
      panelNow = g = null;
      return;
    }
    panelNow = panel;
    if (cursor && (cursor[0] >= panel.R || cursor[1] >= panel.C)) cursor = null;
    const canvas = /** @type {HTMLCanvasElement} */ (byId("map-cells"));
    const room = Math.max(340, innerHeight - frame.getBoundingClientRect().top - scrollY - 24);
    const first = prepared(canvas, 1, 1);
    g = geometry(first, panel, state.zoom, Math.max(frame.clientWidth, 240), room);
    frame.style.height = `${g.height}px`;
    const painter = prepared(canvas, g.width, g.height);
    painter.rect(0, 0, g.width, g.height, ink().paper);
    drawMap(painter, panel, state, g, Math.ceil(Math.max(g.plotW, g.plotH) * (devicePixelRatio || 1)));
    canvas.dataset.geometry = JSON.stringify(g);
    canvas.dataset.shape = `${panel.R},${panel.C}`;
    const overlay = byId("map-over");
    overlay.setAttribute("aria-label", describedMap(panel));
    overlay.style.touchAction = state.zoom ? "none" : "pan-y pinch-zoom";
    drawCursor();
  },
  picture(painter, state) {
    const panel = panelOf(state, state.on);
    const most = Math.max(panel.R, panel.C);
    const cell = most <= 12 ? 40 : most <= 24 ? 26 : most <= 64 ? 14 : most <= 128 ? 10 : 6;
    /** @type {Painter} */
    const shifted = { ...painter };
    const above = 44;
    shifted.rect = (x, y, w, h, fill, opacity) => painter.rect(x, y + above, w, h, fill, opacity);
    shifted.text = (text, x, y, style) => painter.text(text, x, y + above, style);
    shifted.image = (colors, rows, columns, x, y, w, h) => painter.image(colors, rows, columns, x, y + above, w, h);
    const { left, top } = geometry(shifted, panel, "", 1e5, 1e5);
    const [plotW, plotH] = [panel.C * cell, panel.R * cell];
    const room = Math.max(left + plotW + SUMS, 520);
    const [under, across] = margins(painter, panel, room);
    const size = {
      left, top, cw: cell, ch: cell, plotW, plotH, r0: 0, c0: 0, room,
      width: Math.max(left + plotW + SUMS, across), height: top + plotH + under,
    };
    drawMap(shifted, panel, state, size, most);
    return heading(painter, panel, state, size.width, size.height + above);
  },
  numbers: pairsTable,
  focus: () => byId("map-over"),
  pointed: () => (cursor ? pairAt(cursor) : ""),
  step(dx, dy) {
    if (!panelNow || !g) return;
    const pin = pinned(panelNow.queries, get().pin, "q");
    const [r, c] = cursor || [Math.max(pin, 0) - dy, -dx];
    cursor = [clamp(r + dy, 0, panelNow.R - 1), clamp(c + dx, 0, panelNow.C - 1)];
    const [rowsIn, columnsIn] = [g.plotH / g.ch, g.plotW / g.cw];
    if (cursor[0] < g.r0 || cursor[0] >= g.r0 + rowsIn - 1 || cursor[1] < g.c0 || cursor[1] >= g.c0 + columnsIn - 1) {
      if (get().zoom) pan(cursor[0] - g.r0 - rowsIn / 2, cursor[1] - g.c0 - columnsIn / 2);
    }
    drawCursor(true);
  },
  escape() {
    cursor = null;
    drawCursor();
  },
  zoom(factor) {
    if (!g) return;
    if (!factor) set({ zoom: "" });
    else zoomAt(factor, g.left + g.plotW / 2, g.top + g.plotH / 2);
  },
};
