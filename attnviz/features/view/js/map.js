import { byId, clamp, fill, make, say } from "./dom.js";
import { windowHeight } from "./embed.js";
import { known, plural } from "./numbers.js";
import { get, set } from "./store.js";
import { otherPanel, pairsTable, pinned, weightText } from "./panel.js";
import { drawMap, geometry, margins, sums, SUMS } from "./cells.js";
import { itemOf, kindOf, sceneOf } from "./data.js";
import { ink } from "./colors.js";
import { MASKED } from "./masked.js";
import { shifted } from "./painter.js";
import { caption, headed, heading } from "./captions.js";
import { askedOf } from "./rank.js";
import { axesData, framed, placeName } from "./scene.js";
import { wavesOf } from "./waves.js";
import { explained } from "./why.js";
import { hideTip, showTip } from "./tip.js";
import { crosshair, drawPane, partOf } from "./pane.js";
import { pan, startMoving, zoomAt } from "./mapmove.js";
import { alignmentSaid, comparedPairs, NAMES, runName, sideName } from "./comparison.js";
import { columnIn, DIFFERENCE, rowIn, sidesOf } from "./sides.js";
import { drawBeside } from "./beside.js";
import { look } from "./link.js";
import { chosen } from "./token.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Painter} Painter */
/** @typedef {import("./pane.js").Pane} Pane */
/** @typedef {import("./comparison.js").Comparison} Comparison */

/** The maps there are, and those of them that are drawn. @type {Pane[]} */
let panes = [];
/** @type {Pane[]} */
let drawn = [];
/** @type {Comparison | null} */
let comparison = null;
/** @type {{ name: string, r: number, c: number } | null} */
let cursor = null;
/** What is pointed at in another view. @type {import("./types.js").Token | null} */
let elsewhere = null;

/** @param {string} name */
function paneOf(name) {
  return panes.find((pane) => pane.name === name);
}

/** The cursor's cell in the first map, as a question; nothing where it has none there. */
function pairNow() {
  const from = cursor && paneOf(cursor.name);
  if (!cursor || !from) return "";
  const [r, c] = [rowIn(cursor.r, from, panes[0]), columnIn(cursor.c, from, panes[0])];
  const { queries, keys } = panes[0].panel;
  return r >= 0 && c >= 0 ? `q${queries.from[r]}k${keys.from[c]}` : "";
}

/**
 * A cell by its tokens, or by where they stand.
 * @param {Pane} pane
 * @param {number} r
 * @param {number} c
 * @param {boolean} [spoken]
 */
function pairName({ panel: { queries, keys }, state }, r, c, spoken = false) {
  const [scene, data] = [sceneOf(state), axesData(state)];
  const [query, key] = spoken ? [queries.spoken, keys.spoken] : [queries.named, keys.named];
  return [placeName(scene, data[0], queries, r, query), placeName(scene, data[1], keys, c, key)].join(spoken ? " to " : " → ");
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
  return panel.layers.map(({ name, color, whole }, l) => {
    const several = panel.layers.length > 1;
    const [text, all] = [weightText(panel, l, i, 4), sums(panel)[l]];
    const blocked = panel.masked?.[i];
    if (blocked) return { color: "", text, more: blocked === MASKED.selected ? "the layer’s indexer did not select this key" : "the query may not attend to this key" };
    const row = whole ? "1" : known(all.low.rows[r], all.high.rows[r], 3);
    return {
      color: several ? color : "", text: `${several ? `${name}: ` : ""}${text}`,
      more: `${other ? `${other.noun} ${weightText(other, l, i, 3)}; ` : ""}row ${row}, column ${known(all.low.columns[c], all.high.columns[c], 3)}`,
    };
  });
}

/**
 * The weights of a cell on both sides, and their difference.
 * @param {Comparison} found
 * @param {(number[] | null)[]} cells of each pane
 */
function comparedLines({ states }, cells) {
  return panes.flatMap(({ name, panel }, n) => {
    const cell = cells[n];
    const said = n < 2 ? sideName(states, n) : name;
    if (!cell) return n < 2 ? [{ color: "", text: "–", more: `${said}: no counterpart` }] : [];
    return [{ color: "", text: weightText(panel, 0, cell[0] * panel.C + cell[1], 4), more: said }];
  });
}

/** The crosshairs, and the numbers under them. @param {boolean} [spoken] */
function drawCursor(spoken = false) {
  if (!drawn.length) return;
  const state = get();
  const from = cursor && paneOf(cursor.name);
  const [first] = panes;
  const asked = askedOf(state);
  const [pin, pinnedKey] = [pinned(first.panel.queries, state.pin, "q"), pinned(first.panel.keys, state.pin, "k")];
  const why = cursor ? { q: "", k: "" } : explained(state);
  const [reasonRow, reasonColumn] = [pinned(first.panel.queries, why.q, "q"), pinned(first.panel.keys, why.k, "k")];
  const cells = panes.map((pane) => {
    const own = cursor && from ? [rowIn(cursor.r, from, pane), columnIn(cursor.c, from, pane)] : [-1, -1];
    if (drawn.includes(pane)) {
      crosshair(pane,
        [...[asked?.r ?? -1, pin, reasonRow].map((r) => /** @type {[number, number]} */ ([rowIn(r, first, pane), 0.9])), [own[0], 0.7], [elsewhere?.side === "q" ? rowIn(elsewhere.i, first, pane) : -1, 0.7]],
        [...[asked?.c ?? -1, pinnedKey, reasonColumn].map((c) => /** @type {[number, number]} */ ([columnIn(c, first, pane), 0.9])), [own[1], 0.7], [elsewhere?.side === "k" ? columnIn(elsewhere.i, first, pane) : -1, 0.7]]);
    }
    return own[0] >= 0 && own[1] >= 0 ? own : null;
  });
  if (!cursor || !from) {
    hideTip();
    return;
  }
  const { r, c } = cursor;
  const { panel, g, name } = from;
  const lines = comparison ? comparedLines(comparison, cells) : cellLines(panel, r, c);
  const named = [...new Set(panes.slice(0, 2).flatMap((pane, n) => {
    const cell = cells[n];
    return cell ? pairName(pane, cell[0], cell[1]) : [];
  }))].join(" and ");
  const box = partOf(name, "over").getBoundingClientRect();
  showTip(named, lines, box.left + g.left + (c + 1 - g.c0) * g.cw + 10, box.top + g.top + (r + 1 - g.r0) * g.ch + 10,
    name === "second" ? undefined : framed(state, panel.queries.from[r], panel.keys.from[c]));
  if (spoken) {
    const texts = lines.map(({ text, more }) => (comparison ? `${more} ${text}` : text));
    say(`${pairName(from, r, c, true)}: ${texts.join(", ")}`);
  }
}

export function startMap() {
  for (const name of NAMES) {
    const now = () => {
      const pane = drawn.find((one) => one.name === name);
      return pane ? { first: panes[0], pane } : null;
    };
    startMoving(partOf(name, "over"), now, (cell) => {
      cursor = cell && { name, r: cell[0], c: cell[1] };
      look(cell && { side: get().toward ? "k" : "q", i: cell[get().toward ? 1 : 0] }, "map");
      drawCursor();
    }, (cell) => {
      cursor = cell && { name, r: cell[0], c: cell[1] };
      const pair = pairNow();
      const [pin] = pair.split("k");
      if (pair && get().who) set({ pin, who: pair });
      else if (pair) set({ pin: get().pin === pin ? "" : pin });
      drawCursor();
    });
  }
}

/** Mark a token that is pointed at in another view, or none. @param {import("./types.js").Token | null} token */
export function passOver(token) {
  if (!token && !elsewhere) return;
  elsewhere = token && chosen(panes[0].panel, get(), token);
  drawCursor();
}

/** @param {Panel} panel */
function describedMap(panel) {
  const [{ data, name, signed }] = panel.layers;
  const size = signed ? Math.abs : Number;
  let best = 0;
  for (let i = 0; i < data.length; i++) if (size(data[i]) > size(data[best])) best = i;
  const [r, c] = [Math.trunc(best / panel.C), best % panel.C];
  const what = signed ? `Map of the ${name}, the second less the first` : `Attention map of ${panel.layers.map((layer) => layer.name).join(", ")}`;
  return `${what}: ${plural(panel.R, "query")} by ${plural(panel.C, "key")}. ` +
    `Largest ${panel.noun} ${weightText(panel, 0, best)}, ${panel.queries.spoken[r]} to ${panel.keys.spoken[c]}. Shift and arrows read single weights.`;
}

/** The zoom of the first map in the rows and columns of another. @param {string} zoom @param {Pane} pane */
function zoomIn(zoom, pane) {
  if (!zoom || pane === panes[0]) return zoom;
  const [factor, r0, c0] = zoom.split(",").map(Number);
  const [r, c] = [rowIn(Math.floor(r0), panes[0], pane), columnIn(Math.floor(c0), panes[0], pane)];
  return [factor, r < 0 ? r0 : r + (r0 % 1), c < 0 ? c0 : c + (c0 % 1)].join(",");
}

/** @type {import("./types.js").View} */
export const map = {
  draw(state) {
    const found = sidesOf(state);
    ({ comparison } = found);
    const empty = found.sides.some(({ panel }) => !panel.R || !panel.C);
    const shown = found.shown.map(({ name }) => name);
    byId("map-empty").hidden = !empty;
    byId("panes").hidden = empty;
    panes = empty ? [] : found.sides.map((side) => ({ ...side, g: /** @type {any} */ (null) }));
    drawn = panes.filter(({ name }) => shown.includes(name));
    drawBeside(state, comparison);
    for (const name of NAMES) byId(`pane-${name}`).hidden = !shown.includes(name);
    for (const { name, panel, state: one } of drawn) {
      const text = comparison && comparison.states[0].text !== comparison.states[1].text && name !== "difference" ? runName(one.text) : "";
      if (name === "difference") fill(partOf(name, "caption"), make("span", { class: "head-name" }, DIFFERENCE));
      else caption(partOf(name, "caption").id, panel, one, text);
    }
    elsewhere = null;
    if (cursor && (!drawn.some(({ name, panel }) => name === cursor?.name && cursor.r < panel.R && cursor.c < panel.C))) cursor = null;
    if (empty) return;
    const room = Math.max(state.view === "stage" ? 240 : 340, windowHeight() - partOf(drawn[0].name, "frame").getBoundingClientRect().top - scrollY - 24);
    for (const pane of drawn) {
      pane.g = drawPane(pane.name, pane.panel, { ...pane.state, zoom: zoomIn(state.zoom, pane) }, room);
      partOf(pane.name, "over").setAttribute("aria-label", describedMap(pane.panel));
    }
    panes[0].g ||= drawn[0].g;
    drawCursor();
  },
  picture(painter, state) {
    const { comparison: found, shown: some } = sidesOf(state);
    const above = found ? 66 : 44;
    let [x, height] = [0, 0];
    for (const [n, { name, panel, state: one }] of some.entries()) {
      if (n) x += 24;
      const side = NAMES.indexOf(name);
      if (found) painter.text(side < 2 ? sideName(found.states, side) : DIFFERENCE, x + 10, 54, { size: 12, weight: 600, color: ink().text });
      const size = drawWhole(shifted(painter, x, above), panel, one);
      x += size.width;
      height = Math.max(height, size.height + above);
    }
    if (!found) return heading(painter, some[0].panel, state, x, height);
    return headed(painter, `${itemOf(state).model}, ${kindOf(state).title}`, alignmentSaid(found) || itemOf(state).label, x, height);
  },
  numbers(state) {
    const { comparison: found } = sidesOf(state);
    return found ? comparedPairs(found) : pairsTable(state);
  },
  focus: () => partOf(drawn[0]?.name || "first", "over"),
  pointed: pairNow,
  step(dx, dy) {
    const pane = drawn.find(({ name }) => partOf(name, "over") === document.activeElement) || (cursor && paneOf(cursor.name)) || drawn[0];
    if (!pane) return;
    const { panel, g, name } = pane;
    const pin = pinned(panes[0].panel.queries, get().pin, "q");
    const now = cursor && paneOf(cursor.name);
    const [r0, c0] = cursor && now ? [rowIn(cursor.r, now, pane), columnIn(cursor.c, now, pane)] : [Math.max(rowIn(pin, panes[0], pane), 0) - dy, -dx];
    const [r, c] = [clamp(r0 + dy, 0, panel.R - 1), clamp(c0 + dx, 0, panel.C - 1)];
    cursor = { name, r, c };
    const [rowsIn, columnsIn] = [g.plotH / g.ch, g.plotW / g.cw];
    if (get().zoom && (r < g.r0 || r >= g.r0 + rowsIn - 1 || c < g.c0 || c >= g.c0 + columnsIn - 1)) {
      pan(panes[0], r - g.r0 - rowsIn / 2, c - g.c0 - columnsIn / 2);
    }
    drawCursor(true);
  },
  escape() {
    cursor = null;
    drawCursor();
  },
  zoom(factor) {
    if (!factor) set({ zoom: "" });
    else if (drawn.length) zoomAt(panes[0], drawn[0], factor, drawn[0].g.left + drawn[0].g.plotW / 2, drawn[0].g.top + drawn[0].g.plotH / 2);
  },
};

/**
 * The first map alone, no wider than so many pixels: for print.
 * @param {Painter} painter
 * @param {State} state
 * @param {number} width
 */
export function drawForPaper(painter, state, width) {
  const [{ panel, state: one }] = sidesOf(state).shown;
  // where rows sum to 1 no sums stand beside them
  const spare = panel.layers.every(({ whole }) => whole) ? SUMS - 8 : 0;
  const g = geometry(painter, panel, "", width + spare, 1e5, wavesOf(panel, one));
  drawMap(painter, panel, one, g, Math.max(panel.R, panel.C));
  return { width: g.width - spare, height: g.height };
}

/**
 * A map with cells of a size that can be read on paper.
 * @param {Painter} painter
 * @param {Panel} panel
 * @param {State} state
 */
function drawWhole(painter, panel, state) {
  const most = Math.max(panel.R, panel.C);
  const cell = most <= 12 ? 40 : most <= 24 ? 26 : most <= 64 ? 14 : most <= 128 ? 10 : 6;
  const { left, top } = geometry(painter, panel, "", 1e5, 1e5, wavesOf(panel, state));
  const [plotW, plotH] = [panel.C * cell, panel.R * cell];
  const room = Math.max(left + plotW + SUMS, 520);
  const [under, across] = margins(painter, panel, room);
  const size = {
    left, top, cw: cell, ch: cell, plotW, plotH, r0: 0, c0: 0, room,
    width: Math.max(left + plotW + SUMS, across), height: top + plotH + under,
  };
  drawMap(painter, panel, state, size, most);
  return size;
}
