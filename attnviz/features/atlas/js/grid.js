import { arrow, byId, fill, make } from "./dom.js";
import { figure, interval, wholePercent } from "./numbers.js";
import { legend } from "./legend.js";
import { data, heads, metric } from "./data.js";
import { changeColor } from "./signed.js";
import { ramp, rgb, scheme, tones } from "./palette.js";
import { pixelsOf, smallMap } from "./smallmap.js";
import { get, set, subscribe } from "./state.js";
import { draw } from "./svg.js";

/** @typedef {import("./types.js").Head} Head */
/**
 * Something that heads can be tinted by: `share` is of the largest, from -1 to 1, `sure` how certain
 * it is from 0 to 1, `said` what it is in words; null where nothing is known of a head. Of what has a
 * sign, `orange` is the one that is orange, and `ends` what orange and blue say; `most` is the largest.
 * @typedef {{ key: string, title: string, orange?: number, ends?: string[], most?: number, of: (head: Head) => { share: number, sure: number, said: string, color?: string, ink?: string, code?: string } | null }} Tint
 */

/** How strongly an uncertain head is drawn at least. */
const FAINT = 0.3;

const mostCost = Math.max(0, ...heads.map(({ effect }) => Math.abs(effect?.effect || 0)));
const mostCopy = Math.max(0, ...heads.map((head) => Math.abs(copied(head) || 0)));

/** @param {Head} head */
function copied({ copying }) {
  return copying && (copying.first ?? copying.plain);
}

/** Certainty by an interval of a share. @param {number | null} low @param {number | null} high */
function certain(low, high) {
  return low === null || high === null ? 0.5 : Math.max(0, 1 - (high - low));
}

/** @type {Tint[]} */
const TINTS = [
  {
    key: "role", title: "role", of: ({ does, scores }) => {
      if (!does) return null;
      const { low, high } = scores[does.score] || { low: null, high: null };
      return { share: 1, sure: certain(low, high), said: `${does.name} ${figure(does.mean)}`, ...data.roles[does.name] };
    },
  },
  {
    key: "cost", title: metric ? `ablated: ${metric.name} in ${metric.unit}` : "", orange: metric?.orange, ends: metric?.ends, most: mostCost, of: ({ effect }) => effect && {
      share: mostCost ? effect.effect / mostCost : 0, said: figure(effect.effect, true),
      sure: effect.low === null || effect.high === null ? 0.5 : effect.low > 0 || effect.high < 0 ? 1 : 0,
    },
  },
  {
    key: "copying", title: "copying", orange: -1, ends: data.copying, most: mostCopy, of: (head) => {
      const found = copied(head);
      return found === null || found === undefined ? null : { share: mostCopy ? found / mostCopy : 0, sure: 1, said: figure(found, true) };
    },
  },
  {
    key: "relation", title: "relation it finds", of: ({ relations: [found] }) => found && {
      share: found.accuracy, sure: certain(found.low, found.high), said: `${found.relation} ${wholePercent(found.accuracy)} of ${found.count}`,
    },
  },
];
for (const [n, { title, orange, ends }] of data.atlas.measures.entries()) {
  const most = Math.max(0, ...heads.map(({ measured }) => Math.abs(measured[n]?.[0] || 0)));
  TINTS.push({
    key: `beside-${n}`, title, orange, ends, most, of: ({ measured }) => {
      const found = measured[n];
      return found && { share: most ? found[0] / most : 0, sure: certain(found[1], found[2]), said: `${figure(found[0], Boolean(orange))}${interval(found[1], found[2])}` };
    },
  });
}
const tints = TINTS.filter(({ of }) => heads.some((head) => of(head)));
const sites = [...new Set(heads.map(({ site }) => site))];
const across = Math.max(...heads.map(({ head }) => head)) + 1;
/** Sides of a cell and the room between them, in pixels. */
const [CELL, GAP] = [across <= 12 ? 64 : across <= 16 ? 44 : 24, 4];
/** Cells that have room for a map, and the ring around it that says what a head is tinted by, in pixels at most. */
const [MAPPED, RING] = [44, 6];
/** Cells that have room for a role's sign, and how strongly they must be drawn for it to be read. */
const [SIGNED, READ] = [34, 0.85];

/** The layers from above, a line each, by kind of attention. */
const lines = sites.flatMap((site) => [...new Set(heads.filter((head) => head.site === site).map(({ layer }) => layer))].map((layer) => ({ site, layer })));

/** The middle of a head's cell. @param {Head} head @returns {[number, number]} */
function middle(head) {
  const line = lines.findIndex(({ site, layer }) => site === head.site && layer === head.layer);
  return [head.head * (CELL + GAP) + CELL / 2, line * (CELL + GAP) + CELL / 2];
}

/** @param {Tint} tint @param {Head} head */
function colorOf(tint, head) {
  const found = tint.of(head);
  if (!found) return null;
  const root = Math.sign(found.share) * Math.sqrt(Math.abs(found.share));
  const colors = ramp(data.palette);
  const step = 3 * Math.round(255 * Math.max(0, root));
  const color = found.color ? rgb(found.color) : tint.orange ? changeColor(data.signed[scheme()], -tint.orange * root) : [...colors.slice(step, step + 3)];
  return { color: `rgb(${color.join(" ")})`, ink: found.ink || "", sign: found.code || "", sure: FAINT + (1 - FAINT) * found.sure, said: found.said };
}

/** What the colours of a tint say: roles by name, numbers by a bar with its ends. @param {Tint} tint */
function legendOf({ key, orange, ends, most = 1 }) {
  if (key === "role") {
    const roles = [...new Set(heads.flatMap(({ does }) => (does ? [does.name] : [])))];
    return roles.map((name) => {
      const chip = make("i", { class: "chip" });
      chip.style.background = data.roles[name].color;
      return make("span", { class: "scale" }, chip, name);
    });
  }
  if (!orange) return legend(data.palette, "0", key === "relation" ? "100 %" : figure(most), false);
  const [less, none, more] = data.signed[scheme()];
  const [low, high] = orange < 0 ? [less, more] : [more, less];
  const [ofLow, ofHigh] = (orange < 0 ? ends : [...(ends || [])].reverse()) || [];
  const unit = key === "cost" && metric ? ` ${metric.unit}` : "";
  return legend([low, none, high], `${figure(-most, true)}${ofLow ? `, ${ofLow}` : ""}`, `${figure(most, true)}${unit}${ofHigh ? `, ${ofHigh}` : ""}`, false);
}

export function startGrid() {
  const select = /** @type {HTMLSelectElement} */ (byId("tint"));
  fill(select, ...tints.map(({ key, title }) => make("option", { value: key }, title)));
  byId("grid-part").hidden = !tints.length;
  select.addEventListener("change", () => set({ tint: select.value === tints[0]?.key ? "" : select.value }));
  const place = byId("grid");
  place.style.setProperty("--across", String(across));
  place.style.setProperty("--cell", `${CELL}px`);
  fill(place, ...lines.flatMap(({ site, layer }) => [
    make("span", { class: "layer" }, sites.length > 1 ? `${site.slice(0, 5)} ${layer}` : String(layer)),
    ...Array.from({ length: across }, (_, i) => {
      const head = heads.find((one) => one.site === site && one.layer === layer && one.head === i);
      return head ? make("button", { type: "button", "data-head": head.name }, ...(head.map && CELL >= MAPPED ? [smallMap(head, head.map)] : []), make("span", {})) : make("span", {});
    }),
  ]));
  place.addEventListener("click", (event) => {
    const name = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.head;
    if (name) set({ head: name });
  });
  place.addEventListener("keydown", (event) => {
    const step = arrow(event);
    const name = /** @type {HTMLElement} */ (event.target).dataset.head;
    const at = heads.find((head) => head.name === name);
    if (!step || !at) return;
    const line = lines.findIndex(({ site, layer }) => site === at.site && layer === at.layer) + step[1];
    const next = heads.find((head) => head.head === at.head + step[0] && lines[line]?.site === head.site && lines[line]?.layer === head.layer);
    if (next) /** @type {HTMLElement} */ (place.querySelector(`[data-head="${next.name}"]`)).focus();
    event.preventDefault();
  });
  subscribe(drawGrid);
}

/** The grid as a picture. @param {import("./drawing.js").Painter} painter */
export function drawWhole(painter) {
  const tint = tints.find(({ key }) => key === get().tint) || tints[0];
  const [text, soft, line] = tones("--text", "--soft", "--line");
  const [left, top] = [64, 48];
  painter.text(`${data.atlas.model}: ${tint ? tint.title : "heads"}`, 12, 18, { size: 14, weight: 600, color: text });
  lines.forEach(({ site, layer }, n) => painter.text(sites.length > 1 ? `${site.slice(0, 5)} ${layer}` : String(layer), left - 8, top + n * (CELL + GAP) + CELL / 2, { size: 11, align: "right", color: soft }));
  for (const head of heads) {
    const [x, y] = middle(head);
    const found = tint && colorOf(tint, head);
    if (found) painter.rect(left + x - CELL / 2, top + y - CELL / 2, CELL, CELL, found.color.replaceAll(" ", ","), found.sure);
    else painter.rect(left + x - CELL / 2, top + y + CELL / 2 - 1, CELL, 1, line);
    if (found && CELL >= SIGNED && found.sure > READ && found.sign) painter.text(found.sign, left + x, top + y, { size: 11, align: "center", color: found.ink });
  }
  const below = top + lines.length * (CELL + GAP) + 14;
  painter.text("rows are layers, columns heads; faint where it is uncertain", 12, below, { size: 11, color: soft });
  return { width: Math.max(380, left + across * (CELL + GAP) + 12), height: below + 16 };
}

/** The examples of all heads, each in a frame of what it is tinted by, for a card; without examples the grid. @param {import("./drawing.js").Painter} painter */
export function drawTiles(painter) {
  if (!heads.some(({ map }) => map)) return drawWhole(painter);
  const tint = tints.find(({ key }) => key === get().tint) || tints[0];
  const [soft, line] = tones("--soft", "--line");
  const step = CELL + GAP;
  const left = 28;
  lines.forEach(({ layer }, n) => painter.text(String(layer), left - 8, n * step + CELL / 2, { size: 11, align: "right", color: soft }));
  for (const head of heads) {
    const [x, y] = middle(head).map((place) => place - CELL / 2);
    const found = tint && colorOf(tint, head);
    painter.rect(left + x, y, CELL, CELL, found ? found.color.replaceAll(" ", ",") : line, found ? found.sure : 1);
    if (head.map) painter.image(pixelsOf(head, head.map), head.map.queries.length, head.map.keys.length, left + x + RING, y + RING, CELL - 2 * RING, CELL - 2 * RING);
  }
  const below = lines.length * step;
  painter.text(`rows are layers, columns heads${tint ? `; frames: ${tint.title}` : ""}`, left, below + 6, { size: 9, color: soft });
  return { width: left + across * step, height: below + 14 };
}

/** What every cell shows, and who feeds whom. */
export function drawGrid() {
  const { head: chosen, tint: wanted } = get();
  const tint = tints.find(({ key }) => key === wanted) || tints[0];
  if (!tint) return;
  /** @type {HTMLSelectElement} */ (byId("tint")).value = tint.key;
  for (const button of byId("grid").querySelectorAll("button")) {
    const head = /** @type {Head} */ (heads.find(({ name }) => name === button.dataset.head));
    const found = colorOf(tint, head);
    button.style.background = found ? found.color : "";
    button.style.color = found ? found.ink : "";
    const sign = found && CELL >= SIGNED && found.sure > READ ? found.sign : "";
    const [canvas, label] = [button.querySelector("canvas"), /** @type {HTMLElement} */ (button.querySelector("span"))];
    label.textContent = sign;
    label.style.background = sign && canvas && found ? found.color : "";
    if (canvas) button.style.padding = `${found ? Math.round(RING * found.sure) : 1}px`;
    else button.style.opacity = found ? String(found.sure) : "";
    button.classList.toggle("none", !found);
    const said = `${head.name}${sign ? ` ${sign}` : ""}: ${found ? `${tint.title} ${found.said}` : `${tint.title} unknown or none`}`;
    button.title = said;
    button.setAttribute("aria-label", said);
    if (head.name === chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    button.tabIndex = head.name === (chosen || heads[0].name) ? 0 : -1;
  }
  drawArcs(chosen);
  fill(byId("grid-legend"), ...legendOf(tint));
  const arcs = heads.some(({ feeds }) => feeds.length) ? " Choose a head for arrows: what it reads of others and what others read of it, by their weights alone." : "";
  const maps = heads.some(({ map }) => map) && CELL >= MAPPED;
  const faint = maps ? "In a tile the map of the head on an example, around it what it is tinted by: thin" : "Faint";
  fill(byId("grid-said"), `Rows are layers, columns heads. ${faint} where it is uncertain, empty where nothing is known or found.${arcs}`);
}

/** Who feeds the chosen head and whom it feeds. @param {string} chosen */
function drawArcs(chosen) {
  const [width, height] = [across * (CELL + GAP) - GAP, lines.length * (CELL + GAP) - GAP];
  const tip = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, draw("path", { d: "M0 0L8 4L0 8z" }));
  const svg = draw("svg", { class: "arcs", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, tip);
  const edges = new Map(heads.flatMap(({ feeds, reads }) => [...feeds, ...reads]).map((edge) => [`${edge.writer} ${edge.side} ${edge.reader}`, edge]));
  for (const { writer, reader, side, ratio } of edges.values()) {
    const [one, other] = [writer, reader].map((name) => heads.find((head) => head.name === name));
    if (!one || !other || (chosen !== writer && chosen !== reader)) continue;
    const [[x, y], [u, v]] = [middle(one), middle(other)];
    const bow = (v - y) * 0.35 + 6;
    svg.append(draw("path", { d: `M${x} ${y}C${x + 8} ${y + bow} ${u + 8} ${v - bow} ${u} ${v}`, class: "own", "marker-end": "url(#arrow)", "data-side": side, "stroke-width": 1 + 3 * Math.min(1, ratio) }));
  }
  byId("grid").querySelector("svg")?.remove();
  byId("grid").append(svg);
}
