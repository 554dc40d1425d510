import { byId, clamp, fill, make, say, shown } from "./dom.js";
import { described, headOf, itemOf, kindOf, page } from "./data.js";
import { get, set } from "./store.js";
import { ink, inkOn, pixels, ramp } from "./colors.js";
import { matches, pairsTable, panelOf, pinned, saidOf } from "./panel.js";
import { fitted, prepared } from "./painter.js";
import { binned } from "./tiles.js";
import { hideTip, showTip } from "./tip.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Painter} Painter */
/**
 * @typedef {object} Geometry where the cells are, in CSS pixels
 * @property {number} left
 * @property {number} top
 * @property {number} cw cell width
 * @property {number} ch cell height
 * @property {number} r0 first row in sight, may be a fraction
 * @property {number} c0
 * @property {number} plotW
 * @property {number} plotH
 * @property {number} width
 * @property {number} height
 */

const SUMS = 44;
const BELOW = 46;
const FONT = 11.5;

/**
 * @param {number} room
 * @param {number} count
 */
function cellSize(room, count) {
  return clamp(room / Math.max(1, count), 0.05, 56);
}

/**
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {string} zoom
 * @param {number} W
 * @param {number} H
 * @returns {Geometry}
 */
function geometry(painter, panel, zoom, W, H) {
  const { R, C } = panel;
  /** @param {string[]} labels @param {number} most */
  const longest = (labels, most) => clamp(Math.max(...labels.map((label) => painter.measure(label, FONT))) + 12, 24, most);
  const left = longest(panel.queries.labels, Math.min(150, W * 0.28));
  const top = longest(panel.keys.labels, 110);
  const [roomW, roomH] = [W - left - SUMS, H - top - SUMS - BELOW];
  let [cw, ch] = [cellSize(roomW, C), cellSize(roomH, R)];
  if (R === C) cw = ch = Math.min(cw, Math.max(ch, Math.min(cw, 12)));
  else if (cw < ch) ch = Math.min(ch, Math.max(cw, 18));
  else cw = Math.min(cw, Math.max(ch, 18));
  const ratio = devicePixelRatio || 1;
  /** @param {number} size */
  const snapped = (size) => (size >= 4 ? Math.floor(size * ratio) / ratio : size);
  [cw, ch] = [snapped(cw), snapped(ch)];
  const fullH = Math.min(R * ch, Math.max(roomH, R * ch > roomH && ch <= 12 ? R * ch : 0));
  const [factor, r0, c0] = zoom ? zoom.split(",").map(Number) : [1, 0, 0];
  cw *= factor;
  ch *= factor;
  const plotW = Math.min(C * cw, roomW);
  const plotH = Math.min(R * ch, Math.max(fullH, roomH));
  return {
    left, top, cw, ch, plotW, plotH,
    r0: clamp(r0, 0, Math.max(0, R - plotH / ch)),
    c0: clamp(c0, 0, Math.max(0, C - plotW / cw)),
    width: left + plotW + SUMS, height: top + plotH + SUMS + BELOW,
  };
}

/** @type {WeakMap<Panel, { rows: Float64Array[], columns: Float64Array[] }>} */
const summed = new WeakMap();

/** @param {Panel} panel */
function sums(panel) {
  let found = summed.get(panel);
  if (!found) {
    const { R, C, layers } = panel;
    found = { rows: layers.map(() => new Float64Array(R)), columns: layers.map(() => new Float64Array(C)) };
    for (const [l, { data, whole }] of layers.entries()) {
      for (let r = 0, i = 0; r < R; r++) {
        for (let c = 0; c < C; c++, i++) {
          found.rows[l][r] += data[i];
          found.columns[l][c] += data[i];
        }
        if (whole && found.rows[l][r] > 0) found.rows[l][r] = 1;
      }
    }
    summed.set(panel, found);
  }
  return found;
}

/**
 * The colours of the cells in sight.
 * @param {Panel} panel
 * @param {State} state
 * @param {number} ra
 * @param {number} rb
 * @param {number} ca
 * @param {number} cb
 * @param {number} most cells each way; beyond, each shows the largest of several
 */
function cut(panel, state, ra, rb, ca, cb, most) {
  const [R, C] = [rb - ra, cb - ca];
  let size = { R, C };
  const layers = panel.layers.map((one) => {
    const data = new Float32Array(R * C);
    for (let r = 0; r < R; r++) data.set(one.data.subarray((ra + r) * panel.C + ca, (ra + r) * panel.C + cb), r * C);
    const small = binned(data, R, C, most, most);
    size = small;
    const down = Math.ceil(R / small.R);
    const rowTops = Float32Array.from({ length: small.R }, (_, r) =>
      Math.max(...one.rowTops.subarray(ra + r * down, Math.min(rb, ra + (r + 1) * down))));
    return { ...one, data: small.data, rowTops };
  });
  return { colors: pixels({ ...panel, ...size, layers }, state), ...size };
}

/**
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {Geometry} g
 * @param {number} finest cells each way that can be told apart
 */
function drawMap(painter, panel, state, g, finest) {
  const tones = ink();
  const { R, C, queries, keys } = panel;
  const [ra, rb] = [Math.floor(g.r0), Math.min(R, Math.ceil(g.r0 + g.plotH / g.ch - 1e-6))];
  const [ca, cb] = [Math.floor(g.c0), Math.min(C, Math.ceil(g.c0 + g.plotW / g.cw - 1e-6))];
  /** @param {number} r */
  const yOf = (r) => g.top + (r - g.r0) * g.ch;
  /** @param {number} c */
  const xOf = (c) => g.left + (c - g.c0) * g.cw;
  const picture = cut(panel, state, ra, rb, ca, cb, finest);
  painter.image(picture.colors, picture.R, picture.C, xOf(ca), yOf(ra), (cb - ca) * g.cw, (rb - ra) * g.ch);
  if (Math.min(g.cw, g.ch) >= 33 && panel.layers.length === 1) {
    for (let r = ra; r < rb; r++) {
      for (let c = ca; c < cb; c++) {
        const value = panel.layers[0].data[r * C + c];
        if (value < 0.005) continue;
        const i = 4 * ((r - ra) * picture.C + c - ca);
        const color = inkOn(picture.colors[i], picture.colors[i + 1], picture.colors[i + 2]);
        painter.text(value.toFixed(2).replace(/^0/, ""), xOf(c + 0.5), yOf(r + 0.5), { size: 10.5, align: "center", color });
      }
    }
  }
  // what a zoomed map would draw over its margins
  painter.rect(0, 0, g.width, g.top, tones.paper);
  painter.rect(0, 0, g.left, g.height, tones.paper);
  painter.rect(g.left + g.plotW, 0, SUMS + 80, g.height, tones.paper);
  painter.rect(0, g.top + g.plotH, g.width, SUMS + BELOW, tones.paper);
  const found = new Set(matches(queries, state.find));
  const foundKeys = new Set(matches(keys, state.find));
  const [everyRow, everyColumn] = [Math.ceil(10.5 / g.ch), Math.ceil(10.5 / g.cw)];
  const [rowFont, columnFont] = [everyRow * g.ch, everyColumn * g.cw].map((room) => clamp(room * 0.9, 9, FONT));
  for (let r = ra; r < rb; r++) {
    if (yOf(r + 0.5) < g.top || yOf(r + 0.5) > g.top + g.plotH || (r % everyRow && !found.has(r))) continue;
    painter.text(fitted(painter, queries.labels[r], g.left - 10, rowFont), g.left - 6, yOf(r + 0.5), {
      size: rowFont, align: "right", weight: found.has(r) ? 700 : 400, color: found.has(r) ? tones.mark : queries.special[r] ? tones.soft : tones.text,
    });
  }
  for (let c = ca; c < cb; c++) {
    if (xOf(c + 0.5) < g.left || xOf(c + 0.5) > g.left + g.plotW || (c % everyColumn && !foundKeys.has(c))) continue;
    painter.text(fitted(painter, keys.labels[c], g.top - 8, columnFont), xOf(c + 0.5), g.top - 6, {
      size: columnFont, align: "left", turn: true, weight: foundKeys.has(c) ? 700 : 400,
      color: foundKeys.has(c) ? tones.mark : keys.special[c] ? tones.soft : tones.text,
    });
  }
  drawSums(painter, panel, g, ra, rb, ca, cb);
  painter.rect(g.left, g.top - 1, g.plotW, 1, tones.line);
  painter.rect(g.left - 1, g.top - 1, 1, g.plotH + 1, tones.line);
  drawKey(painter, panel, state, g);
}

/**
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {Geometry} g
 * @param {number} ra
 * @param {number} rb
 * @param {number} ca
 * @param {number} cb
 */
function drawSums(painter, panel, g, ra, rb, ca, cb) {
  const tones = ink();
  const { rows, columns } = sums(panel);
  const most = Math.max(...rows.map((list) => Math.max(...list)), 1e-9);
  const mostDown = Math.max(...columns.map((list) => Math.max(...list)), 1e-9);
  const [right, below] = [g.left + g.plotW + 6, g.top + g.plotH + 6];
  const room = SUMS - 14;
  const part = 1 / panel.layers.length;
  panel.layers.forEach((layer, l) => {
    const color = panel.layers.length > 1 ? layer.color : tones.soft;
    for (let r = ra; r < rb; r++) {
      const y = g.top + (r + l * part - g.r0) * g.ch;
      if (y < g.top - 0.5 || y + g.ch * part > g.top + g.plotH + 0.5) continue;
      painter.rect(right, y + (g.ch > 4 ? 0.5 : 0), (room * rows[l][r]) / most, Math.max(g.ch * part - (g.ch > 4 ? 1 : 0), 0.2), color, 0.8);
    }
    for (let c = ca; c < cb; c++) {
      const x = g.left + (c + l * part - g.c0) * g.cw;
      if (x < g.left - 0.5 || x + g.cw * part > g.left + g.plotW + 0.5) continue;
      painter.rect(x + (g.cw > 4 ? 0.5 : 0), below, Math.max(g.cw * part - (g.cw > 4 ? 1 : 0), 0.2), (room * columns[l][c]) / mostDown, color, 0.8);
    }
  });
  painter.text(`Σ ≤${shown(most)}`, right, g.top - 8, { size: 9.5, color: tones.soft });
  painter.text(`Σ ≤${shown(mostDown)}`, g.left - 6, below + 6, { size: 9.5, align: "right", color: tones.soft });
}

/**
 * What the colours mean.
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {Geometry} g
 */
function drawKey(painter, panel, state, g) {
  const tones = ink();
  const y = g.top + g.plotH + SUMS + 4;
  let x = Math.min(g.left, 12);
  const share = { map: "its largest weight", row: "the row's largest", one: "weight" }[state.scale] || "";
  if (panel.layers.length === 1) {
    const colors = ramp(state.palette);
    const rgba = new Uint8ClampedArray(4 * 64);
    for (let i = 0; i < 64; i++) rgba.set([...colors.subarray(12 * i + (i === 63 ? 9 : 0), 12 * i + (i === 63 ? 12 : 3)), 255], 4 * i);
    painter.text("0", x, y + 6, { size: 10.5, color: tones.text });
    painter.image(rgba, 1, 64, x + 12, y, 110, 11);
    const end = state.scale === "map" ? shown(panel.layers[0].top) : state.scale === "row" ? "the row's largest weight" : "1";
    painter.text(end, x + 128, y + 6, { size: 10.5, color: tones.text });
    painter.text("queries ↓   keys →", x, y + 25, { size: 10.5, color: tones.soft });
    return;
  }
  for (const layer of panel.layers) {
    painter.rect(x, y, 11, 11, layer.color);
    const text = `${layer.name} ≤${shown(layer.top)}`;
    painter.text(text, x + 15, y + 6, { size: 10.5, color: tones.text });
    x += 28 + painter.measure(text, 10.5);
  }
  painter.text(`full colour: ${share}    queries ↓   keys →`, Math.min(g.left, 12), y + 25, { size: 10.5, color: tones.soft });
}

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

/** The crosshair, and the number under it. @param {boolean} [spoken] */
function drawCursor(spoken = false) {
  const overlay = /** @type {HTMLCanvasElement} */ (byId("map-over"));
  if (!g || !panelNow) return;
  const painter = prepared(overlay, g.width, g.height);
  const state = get();
  const pin = pinned(panelNow.queries, state.pin, "q");
  const tones = ink();
  const { left, top, plotW, plotH, cw, ch, r0, c0 } = g;
  /** @param {number} r @param {number} opacity */
  const row = (r, opacity) => {
    const [from, to] = [Math.max(top, top + (r - r0) * ch), Math.min(top + plotH, top + (r + 1 - r0) * ch)];
    if (to <= from) return;
    painter.rect(0, from - 1, left + plotW + SUMS, 1, tones.mark, opacity);
    painter.rect(0, to, left + plotW + SUMS, 1, tones.mark, opacity);
  };
  if (pin >= 0) row(pin, 0.9);
  if (!cursor) {
    hideTip();
    return;
  }
  const [r, c] = cursor;
  row(r, 0.7);
  const [from, to] = [Math.max(left, left + (c - c0) * cw), Math.min(left + plotW, left + (c + 1 - c0) * cw)];
  if (to > from) {
    painter.rect(from - 1, 0, 1, top + plotH + SUMS, tones.mark, 0.7);
    painter.rect(to, 0, 1, top + plotH + SUMS, tones.mark, 0.7);
  }
  const { queries, keys, layers, C } = panelNow;
  const { rows, columns } = sums(panelNow);
  const about = page.bits === 8 ? "≈" : "";
  const lines = layers.map((layer, l) => ({
    color: layers.length > 1 ? layer.color : "",
    text: `${layers.length > 1 ? `${layer.name}: ` : ""}${shown(layer.data[r * C + c])}`,
    more: `row ${layer.whole ? "" : about}${shown(rows[l][r])}, column ${about}${shown(columns[l][c])}`,
  }));
  const box = overlay.getBoundingClientRect();
  showTip(`${queries.labels[r]} → ${keys.labels[c]}`, lines, box.left + left + (c + 1 - c0) * cw + 10, box.top + top + (r + 1 - r0) * ch + 10);
  if (spoken) say(`${queries.labels[r]} to ${keys.labels[c]}: ${lines.map(({ text }) => text).join(", ")}`);
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
  const wanted = clamp(factor, 1, 64);
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
  const next = clamp(factor * by, 1, 64);
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
      set({ pin: get().pin === pin ? "" : pin });
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
    `Largest weight ${shown(data[best])}, ${panel.queries.labels[r]} to ${panel.keys.labels[c]}. Shift and arrows read single weights.`;
}

/**
 * What stands above a map or lines: the heads and what must be said.
 * @param {string} id
 * @param {Panel} panel
 * @param {State} state
 */
export function caption(id, panel, state) {
  const chips = panel.layers.map((layer) => {
    const chip = make("span", { class: "chip" });
    chip.style.background = panel.layers.length > 1 ? layer.color : "transparent";
    const head = headOf(state, layer.name.replace("head ", ""));
    const roles = head ? described(head).split(", ").slice(1).join(", ") : "";
    return make("span", { class: "head-name" }, panel.layers.length > 1 ? chip : "", layer.name,
      make("span", { class: "head-roles" }, roles ? ` ${roles}` : ""));
  });
  const said = saidOf(panel, state);
  fill(byId(id), ...chips, make("span", { class: "said" }, said.join(" ")));
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
    const wide = geometry(shifted, panel, "", 1e5, 1e5);
    const size = { ...wide, cw: cell, ch: cell, plotW: panel.C * cell, plotH: panel.R * cell, r0: 0, c0: 0 };
    size.width = size.left + size.plotW + SUMS;
    size.height = size.top + size.plotH + SUMS + BELOW;
    drawMap(shifted, panel, state, size, most);
    return heading(painter, panel, state, size.width, size.height + above);
  },
  numbers: pairsTable,
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
  zoom(factor) {
    if (!g) return;
    if (!factor) set({ zoom: "" });
    else zoomAt(factor, g.left + g.plotW / 2, g.top + g.plotH / 2);
  },
};

/**
 * The title of a saved picture.
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {number} width
 * @param {number} height
 */
export function heading(painter, panel, state, width, height) {
  const tones = ink();
  const names = `${itemOf(state).model}, ${kindOf(state).title}: ${panel.layers.map(({ name }) => name).join(", ")}`;
  const said = saidOf(panel, state).join(" ");
  painter.text(names, 10, 14, { size: 13, weight: 600, color: tones.text });
  painter.text(said || itemOf(state).label, 10, 31, { size: 10.5, color: tones.soft });
  const needed = Math.max(painter.measure(names, 13, 600), painter.measure(said || itemOf(state).label, 10.5)) + 20;
  return { width: Math.max(width, Math.min(needed, 1600)), height };
}
