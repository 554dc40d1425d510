import { clamp } from "./dom.js";
import { known, upward } from "./numbers.js";
import { ends, ink, pixels, rampOf } from "./colors.js";
import { inkOn } from "./palette.js";
import { cellText, matches } from "./panel.js";
import { fitted, magnified } from "./painter.js";
import { binned, binnedMask } from "./tiles.js";
import { MASKED, maskedColor, maskedText } from "./masked.js";
import { ABOVE, AFTER_WAVE, drawWaves, LEFT, wavesOf } from "./waves.js";

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
 * @property {number} room the width that the key may take
 * @property {number} width
 * @property {number} height
 */

export const SUMS = 44;
const BELOW = 46;
const KEY_LINE = 16;
const DIRECTIONS = "queries ↓   keys →";
const CHANGES = `orange: less in the second, blue: more    ${DIRECTIONS}`;
/** The size of labels, and of the numbers in cells. */
const FONT = () => 11.5 * magnified();
const SMALL = () => 10.5 * magnified();

/** @param {number} room @param {number} count */
function cellSize(room, count) {
  return clamp(room / Math.max(1, count), 0.05, 56 * magnified());
}

/**
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {string} zoom
 * @param {number} W
 * @param {number} H
 * @param {ReturnType<typeof wavesOf>} waves
 * @returns {Geometry}
 */
export function geometry(painter, panel, zoom, W, H, waves) {
  const { R, C } = panel;
  /** @param {string[]} labels @param {number} most */
  const longest = (labels, most) => clamp(Math.max(...labels.map((label) => painter.measure(label, FONT()))) + 12, 24, most);
  const left = waves[0] ? LEFT : longest(panel.queries.rows, Math.min(150 * magnified(), W * 0.28));
  const top = waves[1] ? ABOVE : longest(panel.keys.labels, 110 * magnified());
  const [under, across] = margins(painter, panel, W);
  const [roomW, roomH] = [W - left - SUMS, H - top - under];
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
    room: W, width: Math.max(left + plotW + SUMS, across), height: top + plotH + under,
  };
}

/** @typedef {{ rows: Float64Array, columns: Float64Array }} Sums */

/**
 * @param {Float32Array} data
 * @param {number} R
 * @param {number} C
 * @param {boolean} whole whether rows sum to 1, whatever the rounding
 * @returns {Sums}
 */
function summed(data, R, C, whole) {
  const [rows, columns] = [new Float64Array(R), new Float64Array(C)];
  for (let r = 0, i = 0; r < R; r++) {
    for (let c = 0; c < C; c++, i++) {
      rows[r] += data[i];
      columns[c] += data[i];
    }
    if (whole && rows[r] > 0) rows[r] = 1;
  }
  return { rows, columns };
}

/** @type {WeakMap<Panel, { middle: Sums, low: Sums, high: Sums }[]>} */
const ready = new WeakMap();

/** The sums of rows and columns of each layer, and their bounds. @param {Panel} panel */
export function sums(panel) {
  let found = ready.get(panel);
  if (!found) {
    const { R, C } = panel;
    found = panel.layers.map(({ data, low, high, whole: all, signed }) => {
      const whole = all && !signed;
      return { middle: summed(data, R, C, whole), low: summed(low(), R, C, whole), high: summed(high(), R, C, whole) };
    });
    ready.set(panel, found);
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
  const all = panel.masked && Uint8Array.from({ length: R * C }, (_, i) => (panel.masked || [])[(ra + Math.trunc(i / C)) * panel.C + ca + (i % C)]);
  return { colors: pixels({ ...size, layers, masked: binnedMask(all, R, C, most, most) }, state), ...size };
}

/**
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {Geometry} g
 * @param {number} finest cells each way that can be told apart
 */
export function drawMap(painter, panel, state, g, finest) {
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
  if (Math.min(g.cw, g.ch) >= 33 * magnified() && panel.layers.length === 1) {
    for (let r = ra; r < rb; r++) {
      for (let c = ca; c < cb; c++) {
        const value = panel.layers[0].data[r * C + c];
        if (Math.abs(value) < 0.005 || panel.masked?.[r * C + c]) continue;
        const i = 4 * ((r - ra) * picture.C + c - ca);
        const color = inkOn(picture.colors[i], picture.colors[i + 1], picture.colors[i + 2]);
        painter.text(cellText(panel, r * C + c), xOf(c + 0.5), yOf(r + 0.5), { size: SMALL(), align: "center", color });
      }
    }
  }
  // what a zoomed map would draw over its margins
  painter.rect(0, 0, g.width, g.top, tones.paper);
  painter.rect(0, 0, g.left, g.height, tones.paper);
  painter.rect(g.left + g.plotW, 0, g.width - g.left - g.plotW, g.height, tones.paper);
  painter.rect(0, g.top + g.plotH, g.width, g.height - g.top - g.plotH, tones.paper);
  const found = new Set(matches(queries, state.find));
  const foundKeys = new Set(matches(keys, state.find));
  const [everyRow, everyColumn] = [Math.ceil(SMALL() / g.ch), Math.ceil(SMALL() / g.cw)];
  const [rowFont, columnFont] = [everyRow * g.ch, everyColumn * g.cw].map((room) => clamp(room * 0.9, 9, FONT()));
  const waves = wavesOf(panel, state);
  drawWaves(painter, waves, g);
  for (let r = ra; r < rb; r++) {
    if (waves[0] && (r + 0.5 - waves[0].count) * g.ch < AFTER_WAVE * magnified()) continue;
    if (yOf(r + 0.5) < g.top || yOf(r + 0.5) > g.top + g.plotH || (r % everyRow && !found.has(r))) continue;
    painter.text(fitted(painter, queries.rows[r], g.left - 10, rowFont), g.left - 6, yOf(r + 0.5), {
      size: rowFont, align: "right", weight: found.has(r) ? 700 : 400, color: found.has(r) ? tones.mark : queries.special[r] ? tones.soft : tones.text,
    });
  }
  for (let c = ca; c < cb; c++) {
    if (waves[1] && (c + 0.5 - waves[1].count) * g.cw < AFTER_WAVE * magnified()) continue;
    if (xOf(c + 0.5) < g.left || xOf(c + 0.5) > g.left + g.plotW || (c % everyColumn && !foundKeys.has(c))) continue;
    painter.text(fitted(painter, keys.labels[c], g.top - 8, columnFont), xOf(c + 0.5), g.top - 6, {
      size: columnFont, align: "left", turn: true, weight: foundKeys.has(c) ? 700 : 400,
      color: foundKeys.has(c) ? tones.mark : keys.special[c] ? tones.soft : tones.text,
    });
  }
  // between the prompt and what the model wrote
  const [row, column] = [queries, keys].map(({ written }) => written.indexOf(true));
  if (row > ra && row < rb) painter.rect(g.left, yOf(row) - 1, g.plotW, 2, tones.mark);
  if (column > ca && column < cb) painter.rect(xOf(column) - 1, g.top, 2, g.plotH, tones.mark);
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
  const all = sums(panel);
  /** @param {"rows" | "columns"} way */
  const largest = (way) => Math.max(...all.flatMap(({ high, low }) => [...high[way], ...low[way].map((sum) => -sum)]), 1e-9);
  const [most, mostDown] = [largest("rows"), largest("columns")];
  const [less, , more] = ends();
  const [right, below] = [g.left + g.plotW + 6, g.top + g.plotH + 6];
  const room = SUMS - 14;
  const part = 1 / panel.layers.length;
  panel.layers.forEach((layer, l) => {
    const { rows, columns } = all[l].middle;
    /** @param {number} sum */
    const color = (sum) => (layer.signed ? (sum < 0 ? less : more) : panel.layers.length > 1 ? layer.color : tones.soft);
    // rows that all sum to 1 say nothing
    for (let r = layer.whole ? rb : ra; r < rb; r++) {
      const y = g.top + (r + l * part - g.r0) * g.ch;
      if (y < g.top - 0.5 || y + g.ch * part > g.top + g.plotH + 0.5) continue;
      painter.rect(right, y + (g.ch > 4 ? 0.5 : 0), (room * Math.abs(rows[r])) / most, Math.max(g.ch * part - (g.ch > 4 ? 1 : 0), 0.2), color(rows[r]), 0.8);
    }
    for (let c = ca; c < cb; c++) {
      const x = g.left + (c + l * part - g.c0) * g.cw;
      if (x < g.left - 0.5 || x + g.cw * part > g.left + g.plotW + 0.5) continue;
      painter.rect(x + (g.cw > 4 ? 0.5 : 0), below, Math.max(g.cw * part - (g.cw > 4 ? 1 : 0), 0.2), (room * Math.abs(columns[c])) / mostDown, color(columns[c]), 0.8);
    }
  });
  const [{ signed, whole }] = panel.layers;
  const size = signed ? "±" : "Σ ≤";
  if (!whole) painter.text(`${size}${upward(most, 2)}`, right, g.top - 8, { size: 9.5, color: tones.soft });
  const named = `${signed ? "change received" : "received"} ${signed ? "±" : "≤"}${upward(mostDown, 2)}`;
  const received = painter.measure(named, 9.5) < g.left - 8 ? named : `${size}${upward(mostDown, 2)}`;
  painter.text(received, g.left - 6, below + 6, { size: 9.5, align: "right", color: tones.soft });
}

/** What the colours mean. @param {Painter} painter @param {Panel} panel @param {State} state @param {Geometry} g */
function drawKey(painter, panel, state, g) {
  const tones = ink();
  const y = g.top + g.plotH + SUMS + 4;
  const x = Math.min(g.left, 12);
  const share = { map: `its largest ${panel.noun}`, row: "the row's largest", one: panel.noun }[state.scale] || "";
  if (panel.layers[0].signed) {
    drawSignedKey(painter, panel, state, x, y);
    return;
  }
  if (panel.layers.length === 1) {
    const colors = rampOf(state.palette);
    const rgba = new Uint8ClampedArray(4 * 64);
    for (let i = 0; i < 64; i++) rgba.set([...colors.subarray(12 * i + (i === 63 ? 9 : 0), 12 * i + (i === 63 ? 12 : 3)), 255], 4 * i);
    painter.text("0", x, y + 6, { size: 10.5, color: tones.text });
    painter.image(rgba, 1, 64, x + 12, y, 110, 11);
    const end = state.scale === "map" ? known(top(panel.layers[0].low()), top(panel.layers[0].high()), 2) : state.scale === "row" ? `the row's largest ${panel.noun}` : `${panel.layers[0].full === 1 ? "1" : upward(panel.layers[0].full, 2)}`;
    painter.text(end, x + 128, y + 6, { size: 10.5, color: tones.text });
    painter.text(DIRECTIONS, x, y + 25, { size: 10.5, color: tones.soft });
    if (panel.masked) drawMaskedKey(painter, panel.masked, x + painter.measure(DIRECTIONS, 10.5) + 14, y + 25);
    return;
  }
  for (const { layer, x: at, line, text } of keyPlaces(painter, panel, g.room)) {
    painter.rect(at, y + line * KEY_LINE, 11, 11, layer.color);
    painter.text(text, at + 15, y + line * KEY_LINE + 6, { size: 10.5, color: tones.text });
  }
  const [said, under] = [`full colour: ${share}    ${DIRECTIONS}`, y + g.height - g.top - g.plotH - SUMS - BELOW + 25];
  painter.text(said, x, under, { size: 10.5, color: tones.soft });
  if (panel.masked) drawMaskedKey(painter, panel.masked, x + painter.measure(said, 10.5) + 14, under);
}

/**
 * What the colours of masked cells mean.
 * @param {Painter} painter
 * @param {Uint8Array} masked
 * @param {number} x
 * @param {number} y its middle
 */
function drawMaskedKey(painter, masked, x, y) {
  let at = x;
  for (const kind of kindsOf(masked)) {
    painter.rect(at, y - 6, 11, 11, maskedColor(kind));
    painter.text(maskedText(kind), at + 15, y, { size: 10.5, color: ink().soft });
    at += 29 + painter.measure(maskedText(kind), 10.5);
  }
}

/** How cells are masked: not allowed, not selected, or both. @param {Uint8Array} masked */
function kindsOf(masked) {
  return Object.values(MASKED).filter((kind) => masked.includes(kind));
}

/**
 * What the colours of a difference mean, and their range.
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {number} x
 * @param {number} y
 */
function drawSignedKey(painter, panel, state, x, y) {
  const tones = ink();
  const [layer] = panel.layers;
  const steps = Float32Array.from({ length: 64 }, (_, i) => i / 31.5 - 1);
  const bar = pixels({ R: 1, C: 64, layers: [{ ...layer, data: steps, top: 1, rowTops: Float32Array.of(1), full: 1 }], masked: null }, { ...state, scale: "map" });
  const most = { map: upward(layer.top, 2), row: "the row's largest", one: upward(layer.full, 2) }[state.scale] || "";
  const from = `−${most}`;
  painter.text(from, x, y + 6, { size: 10.5, color: tones.text });
  const at = x + painter.measure(from, 10.5) + 6;
  painter.image(bar, 1, 64, at, y, 110, 11);
  painter.text(`+${most}`, at + 116, y + 6, { size: 10.5, color: tones.text });
  painter.text(CHANGES, x, y + 25, { size: 10.5, color: tones.soft });
  if (panel.masked) drawMaskedKey(painter, panel.masked, x + painter.measure(CHANGES, 10.5) + 14, y + 25);
}

/**
 * Where the entries of the key stand, in as many lines as they need.
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {number} width
 */
function keyPlaces(painter, panel, width) {
  let [x, line] = [12, 0];
  return panel.layers.map((layer) => {
    const text = `${layer.name} ≤${upward(top(layer.high()), 2)}`;
    const wide = 28 + painter.measure(text, 10.5);
    if (x > 12 && x + wide > width) [x, line] = [12, line + 1];
    x += wide;
    return { layer, x: x - wide, end: x, line, text };
  });
}

/**
 * How much room sums and key take: below the map, and in all across.
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {number} room
 * @returns {[number, number]}
 */
export function margins(painter, panel, room) {
  if (panel.layers.length === 1) {
    const masked = panel.masked ? kindsOf(panel.masked).reduce((wide, kind) => wide + 29 + painter.measure(maskedText(kind), 10.5), 0) : 0;
    // a bar between two texts, and what directions and grey cells are; see drawKey
    const bar = (panel.layers[0].signed ? 150 : 128) + painter.measure(`the row's largest ${panel.noun}`, 10.5);
    const below = painter.measure(panel.layers[0].signed ? CHANGES : DIRECTIONS, 10.5) + masked;
    return [SUMS + BELOW, 12 + Math.max(bar, below)];
  }
  const places = keyPlaces(painter, panel, room);
  return [SUMS + BELOW + places[places.length - 1].line * KEY_LINE, Math.max(...places.map(({ end }) => end))];
}

/** @type {WeakMap<Float32Array, number>} */
const largest = new WeakMap();

/** @param {Float32Array} data */
function top(data) {
  let found = largest.get(data);
  if (found === undefined) {
    found = 0;
    for (let i = 0; i < data.length; i++) if (data[i] > found) found = data[i];
    largest.set(data, found);
  }
  return found;
}
