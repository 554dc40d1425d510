import { byId, clamp, fill, make, say } from "./dom.js";
import { windowHeight } from "./embed.js";
import { plural } from "./numbers.js";
import { get, set } from "./store.js";
import { ink } from "./colors.js";
import { itemOf, kindOf } from "./data.js";
import { matches, otherPanel, pairsTable, pinned, saidOf, weightText } from "./panel.js";
import { fitted, magnified, prepared, shifted } from "./painter.js";
import { caption, headed, heading } from "./captions.js";
import { alignmentSaid, comparedPairs, NAMES, sideName } from "./comparison.js";
import { columnIn, DIFFERENCE, parted, rowIn, sidesOf } from "./sides.js";
import { drawBeside } from "./beside.js";
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

/** Drawings beside each other are no narrower, as long as there is room for one. */
const NARROWEST = 380;
const BETWEEN = 24;

/** What is drawn, with its lines, and where it begins. @typedef {import("./sides.js").Side & { lines: Line[], left: number, title: string }} Drawing */
/** One token of one of the drawings. @typedef {{ n: number, side: string, i: number }} Token */

/** @type {Drawing[]} */
let drawings = [];
/** The first side, drawn or not: pins are its tokens. @type {import("./sides.js").Side | null} */
let home = null;
/** @type {import("./comparison.js").Comparison | null} */
let comparison = null;
let step = 20;
let labelW = 100;
let width = 600;
let above = ABOVE;
/** @type {Token | null} */
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

/** The token that alone is shown: the one under the pointer, or the pinned one. @returns {Token | null} */
function chosen() {
  if (hovered || !home || !drawings.length) return hovered;
  const { pin } = get();
  const q = rowIn(pinned(home.panel.queries, pin, "q"), home, drawings[0]);
  const k = columnIn(pinned(home.panel.keys, pin, "k"), home, drawings[0]);
  return q >= 0 ? { n: 0, side: "q", i: q } : k >= 0 ? { n: 0, side: "k", i: k } : null;
}

/**
 * The token of another drawing that belongs to one; null where it has none.
 * @param {Token | null} token
 * @param {number} n
 * @returns {Token | null}
 */
function tokenIn(token, n) {
  if (!token) return null;
  const i = (token.side === "q" ? rowIn : columnIn)(token.i, drawings[token.n], drawings[n]);
  return i < 0 ? null : { n, side: token.side, i };
}

/** A token of the first side as the state names it, or nothing. @param {Token} token */
function pinOf(token) {
  if (!home) return "";
  const i = (token.side === "q" ? rowIn : columnIn)(token.i, drawings[token.n], home);
  return i < 0 ? "" : token.side + (token.side === "q" ? home.panel.queries : home.panel.keys).from[i];
}

/**
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 * @param {Line[]} list
 * @param {{ side: string, i: number } | null} token
 * @param {{ step: number, labelW: number, width: number, from: number, to: number, above: number }} place
 */
function drawLines(painter, panel, state, list, token, { step: gap, labelW: side, width: wide, from, to, above: top }) {
  const tones = ink();
  /** @param {number} i */
  const y = (i) => top + (i + 0.5) * gap - from;
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
    const start = Math.max(0, Math.floor((from - top) / gap) - 1);
    const end = Math.min(labels.length, Math.ceil((to - top) / gap) + 1);
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
  if (from < top) {
    painter.text("queries", x1 - 6, top - 14 - from, { size: 10.5, align: "right", color: tones.soft });
    painter.text("keys", x2 + 8, top - 14 - from, { size: 10.5, color: tones.soft });
  }
}

function drawNow() {
  if (!drawings.length) return;
  const frame = byId("lines-frame");
  const canvas = /** @type {HTMLCanvasElement} */ (byId("lines-canvas"));
  const whole = drawings[drawings.length - 1].left + width;
  const painter = prepared(canvas, whole, frame.clientHeight);
  painter.rect(0, 0, whole, frame.clientHeight, ink().paper);
  const from = frame.scrollTop;
  const token = chosen();
  drawings.forEach(({ panel, lines, left, title, state }, n) => {
    const own = tokenIn(token, n);
    const list = own ? ofToken(panel, own) : token ? [] : lines;
    const place = { step, labelW, width, from, to: from + frame.clientHeight, above };
    const here = shifted(painter, left, 0);
    drawLines(here, panel, { ...state, find: get().find }, list, own, place);
    if (title && from < above) here.text(fitted(here, title, width - 10, 12), 6, above - 34 - from, { size: 12, weight: 600, color: ink().text });
    if (!n) canvas.dataset.lines = String(list.length);
  });
  canvas.dataset.geometry = JSON.stringify({ step, labelW, width, above, from, lefts: drawings.map(({ left }) => left) });
}

/** @param {number} x @param {number} y @returns {Token | null} */
function tokenAt(x, y) {
  const n = drawings.findIndex(({ left }) => x >= left && x < left + width);
  if (n < 0) return null;
  const { panel, left } = drawings[n];
  const i = Math.floor((y - above) / step);
  const side = x - left < labelW + 8 ? "q" : x - left > width - labelW - 8 ? "k" : "";
  if (!side || i < 0 || i >= (side === "q" ? panel.R : panel.C)) return null;
  return { n, side, i };
}

/** The strongest lines of a token in one drawing. @param {Drawing} drawing @param {Token} token @param {number} most */
function strongest({ panel }, token, most) {
  const { queries, keys } = panel;
  return ofToken(panel, token).slice(-most).reverse().map(({ l, r, c, color }) => ({
    l, color: panel.layers.length > 1 ? color : "", cell: r * panel.C + c, place: token.side === "q" ? c : r, other: token.side === "q" ? keys : queries,
  }));
}

/** @param {Token} token */
function tellToken(token) {
  const { queries, keys } = drawings[token.n].panel;
  const name = token.side === "q" ? `${queries.spoken[token.i]} attends to` : `${keys.spoken[token.i]} is attended to by`;
  const parts = drawings.flatMap((drawing, n) => {
    const own = tokenIn(token, n);
    if (!own) return [];
    const best = strongest(drawing, own, 4).map(({ l, cell, place, other }) => {
      const layer = drawing.panel.layers.length > 1 && drawing.name === "difference" ? `${drawing.panel.layers[l].name} ` : "";
      return `${layer}${other.spoken[place]} ${weightText(drawing.panel, l, cell)}`;
    });
    return [`${drawing.title ? `${drawing.title}: ` : ""}${best.join(", ") || "nothing"}`];
  });
  say(`${name} ${parts.join("; ")}`);
}

/** @param {Token} token @param {MouseEvent} event */
function tipOf(token, event) {
  const { queries, keys } = drawings[token.n].panel;
  const label = token.side === "q" ? queries.named[token.i] : keys.named[token.i];
  const several = drawings.length > 1;
  const lines = drawings.flatMap((drawing, n) => {
    const own = tokenIn(token, n);
    if (!own) return [{ color: "", text: "–", more: `${drawing.title}: no counterpart` }];
    return strongest(drawing, own, several ? 3 : 5).map(({ l, color, cell, place, other }) => ({
      color, text: several ? weightText(drawing.panel, l, cell) : bothTexts(drawing.panel, l, cell),
      more: other.named[place] + (several ? `, ${drawing.name === "difference" ? drawing.panel.layers[l].name : drawing.title}` : ""),
    }));
  });
  showTip(token.side === "q" ? `${label} attends to` : `${label} is attended to by`, lines, event.clientX + 14, event.clientY + 14);
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
    if (next?.n === hovered?.n && next?.side === hovered?.side && next?.i === hovered?.i) return;
    hovered = next;
    canvas.style.cursor = next ? "pointer" : "default";
    drawNow();
    if (next) tipOf(next, event);
    else hideTip();
  });
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "mouse") return;
    hovered = null;
    hideTip();
    drawNow();
  });
  canvas.addEventListener("click", (event) => {
    const token = at(event);
    const pin = token && pinOf(token);
    if (!token || !pin) return;
    const { who } = get();
    hovered = null;
    if (who) set({ pin, who: withToken(who, token.side, Number(pin.slice(1)), false) });
    else set({ pin: get().pin === pin ? "" : pin });
    tellToken(token);
  });
  frame.addEventListener("scroll", () => {
    hideTip();
    drawNow();
  }, { passive: true });
}

/** The longest label of some panels. @param {Painter} painter @param {Drawing[]} some */
function longest(painter, some) {
  const labels = some.flatMap(({ panel }) => [...panel.queries.labels, ...panel.keys.labels]);
  return Math.max(...labels.map((label) => painter.measure(label, FONT(), 700)));
}

/** The drawings of a state, at most so many beside each other. @param {State} state @param {number} most */
function drawn(state, most) {
  const found = sidesOf(state);
  ({ comparison } = found);
  [home] = found.sides;
  drawings = found.shown.slice(0, most).map((side) => {
    const n = NAMES.indexOf(side.name);
    const title = !comparison ? "" : n < 2 ? sideName(comparison.states, n) : DIFFERENCE;
    const panel = parted(side.panel);
    return { ...side, panel, lines: kept(panel, state), left: 0, title };
  });
  return found;
}

/** @type {import("./types.js").View} */
export const linesView = {
  draw(state) {
    const frame = byId("lines-frame");
    frame.hidden = false;
    const room = Math.max(NARROWEST, frame.clientWidth);
    const { sides, shown } = drawn(state, Math.max(1, Math.trunc((room + BETWEEN) / (NARROWEST + BETWEEN))));
    const { panel } = sides[0];
    const empty = sides.some((side) => !side.panel.R || !side.panel.C);
    byId("lines-empty").hidden = !empty;
    frame.hidden = empty;
    if (!comparison) caption("lines-caption", panel, state);
    else {
      const change = drawings.some(({ name }) => name === "difference") ? ["Of the difference, blue is more in the second and orange less, as a part of the largest change."] : [];
      const left = drawings.length < shown.length ? [`There is room for ${drawings.length} of ${shown.length} here; choose which to show.`] : [];
      fill(byId("lines-caption"), make("span", { class: "said" }, [...saidOf(panel, sides[0].state), ...change, ...left].join(" ")));
    }
    drawBeside(state, comparison);
    hovered = null;
    if (empty) {
      drawings = [];
      return;
    }
    above = ABOVE + (comparison ? 22 : 0);
    const count = Math.max(...drawings.map((one) => Math.max(one.panel.R, one.panel.C)));
    const high = Math.max(340, windowHeight() - frame.getBoundingClientRect().top - scrollY - 24);
    const usual = (count <= 40 ? 24 : count <= 120 ? 19 : 15) * magnified();
    step = magnified() > 1 ? clamp((high - above - 8) / count, usual, 2 * usual) : usual;
    const needed = above + count * step + 8;
    frame.style.height = `${Math.min(needed, high)}px`;
    byId("lines-space").style.height = `${Math.max(0, needed - Math.min(needed, high))}px`;
    width = clamp((frame.clientWidth + BETWEEN) / drawings.length - BETWEEN, 240, Math.max(WIDEST, 2 * frame.clientHeight));
    drawings.forEach((one, n) => { one.left = n * (width + BETWEEN); });
    const painter = prepared(/** @type {HTMLCanvasElement} */ (byId("lines-canvas")), 1, 1);
    labelW = clamp(longest(painter, drawings) + 52, 60, Math.min(200 * magnified(), width * 0.34));
    const said = drawings.map(({ panel: { R, C }, lines, title }) => `${title ? `${title}: ` : ""}${plural(R, "query")} on the left to ${plural(C, "key")} on the right, ${lines.length} of them`);
    byId("lines-canvas").setAttribute("aria-label", `Lines from ${said.join("; ")}. Shift and arrows go from token to token.`);
    const token = chosen();
    if (token) {
      const at = above + token.i * step;
      if (at < frame.scrollTop || at > frame.scrollTop + frame.clientHeight - step) frame.scrollTop = at - frame.clientHeight / 2;
    }
    drawNow();
  },
  picture(painter, state) {
    const before = drawings;
    drawn(state, NAMES.length);
    hovered = null;
    const gap = 20 * magnified();
    const side = clamp(longest(painter, drawings) + 52, 60, 260);
    const over = 44 + ABOVE + (comparison ? 22 : 0);
    const height = over + Math.max(...drawings.map(({ panel }) => Math.max(panel.R, panel.C))) * gap + 12;
    const wide = 2 * side + 320;
    const token = chosen();
    drawings.forEach(({ panel, lines, title }, n) => {
      const own = tokenIn(token, n);
      const here = shifted(painter, n * (wide + BETWEEN), 0);
      drawLines(here, panel, state, own ? ofToken(panel, own) : token ? [] : lines, own, { step: gap, labelW: side, width: wide, from: 0, to: height, above: over });
      if (title) here.text(title, 10, over - 34, { size: 12, weight: 600, color: ink().text });
    });
    const all = drawings.length * (wide + BETWEEN) - BETWEEN;
    const [{ panel }] = drawings;
    drawings = before;
    if (!comparison) return heading(painter, panel, state, all, height);
    return headed(painter, `${itemOf(state).model}, ${kindOf(state).title}`, alignmentSaid(comparison) || itemOf(state).label, all, height);
  },
  numbers(state) {
    const { comparison: found } = sidesOf(state);
    return found ? comparedPairs(found) : pairsTable(state);
  },
  focus: () => byId("lines-frame"),
  pointed() {
    const pin = hovered && pinOf(hovered);
    return hovered && pin ? withToken(get().pin, hovered.side, Number(pin.slice(1)), false) : "";
  },
  step(dx, dy) {
    if (!drawings.length) return;
    const now = chosen() || { n: 0, side: "q", i: -dy };
    const { panel } = drawings[now.n];
    const side = dx ? (dx < 0 ? "q" : "k") : now.side;
    const i = clamp(now.i + dy, 0, (side === "q" ? panel.R : panel.C) - 1);
    const token = { n: now.n, side, i };
    const pin = pinOf(token);
    if (!pin) return;
    set({ pin });
    tellToken(token);
  },
};
