import { byId, clamp, say } from "./dom.js";
import { get, set } from "./store.js";
import { ink } from "./colors.js";
import { matches, otherPanel, pairsTable, panelOf, pinned, weightText } from "./panel.js";
import { fitted, magnified, prepared } from "./painter.js";
import { caption, heading } from "./captions.js";
import { withToken } from "./rank.js";
import { hideTip, showTip } from "./tip.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Painter} Painter */
/** @typedef {{ l: number, r: number, c: number, weight: number, color: string }} Line which layer, query and key; its weight or share of the largest norm */

const FONT = () => 12.5 * magnified();
const ABOVE = 26;
const THICKEST = 5;
/** Lines are no longer than this, or than twice their height. */
const WIDEST = 1700;

/** @type {Panel | null} */
let panelNow = null;
/** @type {Line[]} */
let lines = [];
let step = 20;
let labelW = 100;
let width = 600;
/** @type {{ side: string, i: number } | null} */
let hovered = null;

/**
 * The lines to draw: of each query its largest weights, if they are large enough.
 * @param {Panel} panel
 * @param {State} state
 * @returns {Line[]}
 */
function kept(panel, state) {
  const { R, C, layers } = panel;
  /** @type {Line[]} */
  const out = [];
  for (const [l, { data, color, full }] of layers.entries()) {
    for (let r = 0; r < R; r++) {
      const row = data.subarray(r * C, (r + 1) * C);
      const some = [];
      for (let c = 0; c < C; c++) if (row[c] >= state.least * full && row[c] > 0) some.push(c);
      some.sort((a, b) => row[b] - row[a]);
      for (const c of some.slice(0, state.top)) out.push({ l, r, c, weight: row[c] / full, color });
    }
  }
  return out.sort((a, b) => a.weight - b.weight);
}

/**
 * All lines of one token, however thin.
 * @param {Panel} panel
 * @param {{ side: string, i: number }} token
 * @returns {Line[]}
 */
function ofToken(panel, { side, i }) {
  const { R, C, layers } = panel;
  /** @type {Line[]} */
  const out = [];
  for (const [l, { data, color, full }] of layers.entries()) {
    for (let other = 0; other < (side === "q" ? C : R); other++) {
      const [r, c] = side === "q" ? [i, other] : [other, i];
      if (data[r * C + c] > 0.001 * full) out.push({ l, r, c, weight: data[r * C + c] / full, color });
    }
  }
  return out.sort((a, b) => a.weight - b.weight);
}

/**
 * A number and, where the page has both, that of the other quantity.
 * @param {Panel} panel
 * @param {number} l
 * @param {number} i
 */
function bothTexts(panel, l, i) {
  const other = otherPanel(panel, get());
  return weightText(panel, l, i) + (other ? `, ${other.noun} ${weightText(other, l, i)}` : "");
}

/** The token that alone is shown: the one under the pointer, or the pinned one. */
function chosen() {
  if (hovered || !panelNow) return hovered;
  const { pin } = get();
  const q = pinned(panelNow.queries, pin, "q");
  const k = pinned(panelNow.keys, pin, "k");
  return q >= 0 ? { side: "q", i: q } : k >= 0 ? { side: "k", i: k } : null;
}

/**
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {Line[]} list
 * @param {{ side: string, i: number } | null} token
 * @param {{ step: number, labelW: number, width: number, from: number, to: number, above: number }} place
 */
function drawLines(painter, panel, state, list, token, { step: gap, labelW: side, width: wide, from, to, above }) {
  const tones = ink();
  /** @param {number} i */
  const y = (i) => above + (i + 0.5) * gap - from;
  const [x1, x2] = [side + 8, wide - side - 8];
  const high = to - from;
  for (const { r, c, weight, color } of list) {
    const [a, b] = [y(r), y(c)];
    if ((a < 0 && b < 0) || (a > high && b > high)) continue;
    painter.curve(x1, a, x2, b, color, 0.6 + THICKEST * weight, weight);
  }
  /** @param {string[]} labels @param {boolean[]} special @param {string} which */
  const column = (labels, special, which) => {
    const left = which === "q";
    const found = new Set(matches(left ? panel.queries : panel.keys, state.find));
    const start = Math.max(0, Math.floor((from - above) / gap) - 1);
    const end = Math.min(labels.length, Math.ceil((to - above) / gap) + 1);
    for (let i = start; i < end; i++) {
      const own = token && token.side === which && token.i === i;
      if (token && token.side !== which) {
        const cell = left ? i * panel.C + token.i : token.i * panel.C + i;
        const strongest = panel.layers.reduce((best, { data }, l) => (data[cell] > panel.layers[best].data[cell] ? l : best), 0);
        const { data, color, full } = panel.layers[strongest];
        if (data[cell] >= 0.005 * full) {
          painter.rect(left ? 2 : x2 + 4, y(i) - gap / 2 + 1, side - 2, gap - 2, color, 0.12 + 0.3 * (data[cell] / full));
          painter.text(weightText(panel, strongest, cell), left ? 6 : wide - 6, y(i), { size: 10, align: left ? "left" : "right", color: tones.soft });
        }
      }
      if (own) painter.rect(left ? 2 : x2 + 4, y(i) - gap / 2 + 1, side - 2, gap - 2, tones.mark, 0.25);
      const bold = own || found.has(i);
      const numbers = token && token.side !== which ? 40 : 10;
      painter.text(fitted(painter, labels[i], side - numbers, Math.min(FONT(), gap - 3)), left ? x1 - 6 : x2 + 8, y(i), {
        size: Math.min(FONT(), gap - 3), align: left ? "right" : "left", weight: bold ? 700 : 400,
        color: found.has(i) ? tones.mark : special[i] ? tones.soft : tones.text,
      });
    }
  };
  column(panel.queries.labels, panel.queries.special, "q");
  column(panel.keys.labels, panel.keys.special, "k");
  if (from < above) {
    painter.text("queries", x1 - 6, above - 14 - from, { size: 10.5, align: "right", color: tones.soft });
    painter.text("keys", x2 + 8, above - 14 - from, { size: 10.5, color: tones.soft });
  }
}

function drawNow() {
  if (!panelNow) return;
  const frame = byId("lines-frame");
  const canvas = /** @type {HTMLCanvasElement} */ (byId("lines-canvas"));
  const painter = prepared(canvas, width, frame.clientHeight);
  painter.rect(0, 0, width, frame.clientHeight, ink().paper);
  const token = chosen();
  const from = frame.scrollTop;
  const list = token ? ofToken(panelNow, token) : lines;
  drawLines(painter, panelNow, get(), list, token, { step, labelW, width, from, to: from + frame.clientHeight, above: ABOVE });
  canvas.dataset.geometry = JSON.stringify({ step, labelW, width, above: ABOVE, from });
  canvas.dataset.lines = String(list.length);
}

/**
 * @param {number} x
 * @param {number} y
 * @returns {{ side: string, i: number } | null}
 */
function tokenAt(x, y) {
  if (!panelNow) return null;
  const i = Math.floor((y - ABOVE) / step);
  const side = x < labelW + 8 ? "q" : x > width - labelW - 8 ? "k" : "";
  if (!side || i < 0 || i >= (side === "q" ? panelNow.R : panelNow.C)) return null;
  return { side, i };
}

/** @param {{ side: string, i: number }} token */
function tellToken({ side, i }) {
  if (!panelNow) return;
  const best = ofToken(panelNow, { side, i }).slice(-4).reverse();
  const panel = panelNow;
  const { queries, keys } = panel;
  const name = side === "q" ? `${queries.spoken[i]} attends to` : `${keys.spoken[i]} is attended to by`;
  say(`${name} ${best.map(({ l, r, c }) => `${side === "q" ? keys.spoken[c] : queries.spoken[r]} ${weightText(panel, l, r * panel.C + c)}`).join(", ") || "nothing"}`);
}

export function startLines() {
  const frame = byId("lines-frame");
  const canvas = byId("lines-canvas");
  /** @param {MouseEvent} event */
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return tokenAt(event.clientX - box.left, event.clientY - box.top + frame.scrollTop);
  };
  canvas.addEventListener("pointermove", (event) => {
    const next = at(event);
    if (next?.side === hovered?.side && next?.i === hovered?.i) return;
    hovered = next;
    canvas.style.cursor = next ? "pointer" : "default";
    drawNow();
    if (!next || !panelNow) hideTip();
    else {
      const panel = panelNow;
      const { queries, keys, layers, C } = panel;
      const label = next.side === "q" ? queries.named[next.i] : keys.named[next.i];
      const best = ofToken(panel, next).slice(-5).reverse().map(({ l, r, c, color }) => ({
        color: layers.length > 1 ? color : "",
        text: bothTexts(panel, l, r * C + c), more: next.side === "q" ? keys.named[c] : queries.named[r],
      }));
      showTip(next.side === "q" ? `${label} attends to` : `${label} is attended to by`, best, event.clientX + 14, event.clientY + 14);
    }
  });
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    hideTip();
    drawNow();
  });
  canvas.addEventListener("click", (event) => {
    const token = at(event);
    if (!token || !panelNow) return;
    const pin = token.side + (token.side === "q" ? panelNow.queries : panelNow.keys).from[token.i];
    hovered = null;
    const { who } = get();
    if (who) set({ pin, who: withToken(who, token.side, Number(pin.slice(1)), false) });
    else set({ pin: get().pin === pin ? "" : pin });
    tellToken(token);
  });
  frame.addEventListener("scroll", () => {
    hideTip();
    drawNow();
  }, { passive: true });
}

/** @type {import("./types.js").View} */
export const linesView = {
  draw(state) {
    const panel = panelOf(state, state.on);
    const empty = !panel.R || !panel.C;
    byId("lines-empty").hidden = !empty;
    byId("lines-frame").hidden = empty;
    caption("lines-caption", panel, state);
    panelNow = empty ? null : panel;
    hovered = null;
    if (empty) return;
    lines = kept(panel, state);
    const frame = byId("lines-frame");
    const count = Math.max(panel.R, panel.C);
    const room = Math.max(340, innerHeight - frame.getBoundingClientRect().top - scrollY - 24);
    const usual = (count <= 40 ? 24 : count <= 120 ? 19 : 15) * magnified();
    step = magnified() > 1 ? clamp((room - ABOVE - 8) / count, usual, 2 * usual) : usual;
    const needed = ABOVE + count * step + 8;
    frame.style.height = `${Math.min(needed, room)}px`;
    byId("lines-space").style.height = `${Math.max(0, needed - Math.min(needed, room))}px`;
    width = clamp(frame.clientWidth, 240, Math.max(WIDEST, 2 * frame.clientHeight));
    const painter = prepared(/** @type {HTMLCanvasElement} */ (byId("lines-canvas")), 1, 1);
    const longest = Math.max(...[...panel.queries.labels, ...panel.keys.labels].map((label) => painter.measure(label, FONT(), 700)));
    labelW = clamp(longest + 52, 60, Math.min(200 * magnified(), width * 0.34));
    byId("lines-canvas").setAttribute("aria-label", `Lines from ${panel.R} queries on the left to ${panel.C} keys on the right, ${lines.length} of them. Shift and arrows go from token to token.`);
    const token = chosen();
    if (token) {
      const at = ABOVE + token.i * step;
      if (at < frame.scrollTop || at > frame.scrollTop + frame.clientHeight - step) frame.scrollTop = at - frame.clientHeight / 2;
    }
    drawNow();
  },
  picture(painter, state) {
    const panel = panelOf(state, state.on);
    const gap = 20 * magnified();
    const longest = Math.max(...[...panel.queries.labels, ...panel.keys.labels].map((label) => painter.measure(label, FONT(), 700)));
    const side = clamp(longest + 52, 60, 260);
    const height = 44 + ABOVE + Math.max(panel.R, panel.C) * gap + 12;
    panelNow = panel;
    hovered = null;
    const token = chosen();
    const wide = 2 * side + 320;
    const list = token ? ofToken(panel, token) : kept(panel, state);
    drawLines(painter, panel, state, list, token, { step: gap, labelW: side, width: wide, from: 0, to: height, above: ABOVE + 44 });
    return heading(painter, panel, state, wide, height);
  },
  numbers: pairsTable,
  focus: () => byId("lines-frame"),
  pointed() {
    if (!panelNow || !hovered) return "";
    const token = (hovered.side === "q" ? panelNow.queries : panelNow.keys).from[hovered.i];
    return withToken(get().pin, hovered.side, token, false);
  },
  step(dx, dy) {
    if (!panelNow) return;
    const now = chosen() || { side: "q", i: -dy };
    const side = dx ? (dx < 0 ? "q" : "k") : now.side;
    const axis = side === "q" ? panelNow.queries : panelNow.keys;
    const i = clamp(now.i + dy, 0, axis.at.length - 1);
    set({ pin: side + axis.from[i] });
    tellToken({ side, i });
  },
};
