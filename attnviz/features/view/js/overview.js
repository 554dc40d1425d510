import { byId, clamp, fill, make } from "./dom.js";
import { windowHeight } from "./embed.js";
import { headsOf, isFolded, isLoaded, itemOf, kindOf, load, MANY, page, several } from "./data.js";
import { get, set, shows, SORTS, sortsOf, toggle } from "./store.js";
import { ink, rampOf } from "./colors.js";
import { legend } from "./legend.js";
import { chosen } from "./token.js";
import { axesOf, cutSaid, fullSaid, isCut, nounOf } from "./panel.js";
import { magnified, prepared } from "./painter.js";
import { tile } from "./tiles.js";
import { askedOf, ranking } from "./rank.js";
import { track } from "./busy.js";
import { hidePreview, preview } from "./preview.js";
import { drawTints, hatch, labelled, measureOf, numberNames, numbersOf, paintTints, tintSaid, tone } from "./tints.js";
import { groupsOf } from "./groups.js";
import { drawPlane, paintPlane, planeCanvas, planeNumbers } from "./plane.js";
import { term } from "./words.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Painter} Painter */
/** @typedef {import("./types.js").Token} Token */

/** Beside the tiles of a layer, and of several layers. */
const [SIDE, SIDES] = [24, 46];
/** The least sides of a tile with a head's name and sign, with its sign alone, and where tiles are folded. */
const [NAMED, SIGNED, FOLDED] = [44, 26, 58];
const LARGEST = 240;
/** What stands below the tiles, and the least height that they are fitted into. */
const [BELOW, LEAST_HEIGHT] = [76, 220];
/** Saved overviews have about so many cells, so that an SVG stays small. */
const SAVED_CELLS = 250000;

/**
 * As large as the width allows, and so that every layer is in sight, as long as maps can be made out.
 * @param {State} state
 * @param {number} width
 * @param {number} height
 */
function sizes(state, width, height) {
  const heads = headsOf(state);
  const folded = isFolded(state);
  const across = Math.max(...heads.map(({ data }) => data.index)) + 1;
  const room = width - sideOf(state);
  const gap = room / across > 40 ? 6 : room / across > 30 ? 3 : room / across > 26 ? 2 : 1;
  const least = folded ? FOLDED : state.sort === "model" ? 24 : 56;
  const layer = state.sort === "model" ? height / kindOf(state).sites.length - gap : LARGEST;
  const tall = Math.floor(layer - (layer > SIGNED + 15 ? 15 * magnified() : 4));
  const size = clamp(Math.min(Math.floor(room / across) - gap, tall), least, heads.length === 1 ? 360 : Math.max(LARGEST, tall));
  const strip = size >= SIGNED ? Math.round(15 * magnified()) : 4;
  return { size, gap, strip, across: Math.max(1, Math.floor(room / (size + gap))) };
}

/** What stands beside the tiles. @param {State} state */
function sideOf(state) {
  return isFolded(state) && state.sort === "model" ? SIDES : SIDE;
}

/**
 * @param {Painter} painter
 * @param {State} state
 * @param {Head} head
 * @param {number} x
 * @param {number} y
 * @param {{ size: number, strip: number }} sizes
 * @param {number} cells at most, each way
 */
function drawTile(painter, state, head, x, y, { size, strip }, cells) {
  const { colors, R, C } = tile(state, head, cells);
  const tones = ink();
  painter.rect(x - 0.5, y - 0.5, size + 1, size + strip + 1, tones.line);
  painter.image(colors, R, C, x, y, size, size);
  markAsked(painter, state, head, x, y, size);
  const { color, ink: on, sign, hatched } = tone(state, head);
  painter.rect(x, y + size, size, strip, color || tones.paper);
  if (hatched) hatch(painter, x, y + size, size, strip);
  if (strip > 10) {
    const letters = Math.min(10 * magnified(), strip - 3);
    const whole = size >= NAMED ? `${head.name} ${sign}`.trim() : sign;
    const fits = painter.measure(whole, letters) < size;
    painter.text(fits ? whole : sign, x + size / 2, y + size + strip / 2 + 0.5, { size: letters, align: "center", color: on });
  }
}

/**
 * The row and column of what is asked about; a frame as strong as the head's weight on that pair,
 * and a veil over the others.
 * @param {Painter} painter
 * @param {State} state
 * @param {Head} head
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
function markAsked(painter, state, head, x, y, size) {
  const asked = askedOf(state);
  if (!asked) return;
  const { queries, keys } = axesOf(state);
  const tones = ink();
  const part = ranking(state)?.find((one) => one.head.id === head.id)?.part;
  if (part !== undefined) painter.rect(x, y, size, size, tones.paper, 0.75 * (1 - part));
  const [down, across] = [size / queries.at.length, size / keys.at.length];
  if (asked.r >= 0) {
    painter.rect(x, y + asked.r * down - 0.5, size, 1, tones.mark, 0.8);
    painter.rect(x, y + (asked.r + 1) * down - 0.5, size, 1, tones.mark, 0.8);
  }
  if (asked.c >= 0) {
    painter.rect(x + asked.c * across - 0.5, y, 1, size, tones.mark, 0.8);
    painter.rect(x + (asked.c + 1) * across - 0.5, y, 1, size, tones.mark, 0.8);
  }
  if (!part) return;
  const wide = size >= 38 ? 3 : 2;
  painter.rect(x, y, size, wide, tones.mark, part);
  painter.rect(x, y + size - wide, size, wide, tones.mark, part);
  painter.rect(x, y + wide, wide, size - 2 * wide, tones.mark, part);
  painter.rect(x + size - wide, y + wide, wide, size - 2 * wide, tones.mark, part);
}

/** The pair of tokens under the pointer in a small map, as a question. */
function pairUnder() {
  const box = under && byId("overview-tiles").contains(under.button) ? under.button.getBoundingClientRect() : null;
  if (!under || !box) return "";
  const { queries, keys } = axesOf(get());
  const [r, c] = [(under.y - box.top) * queries.at.length, (under.x - box.left) * keys.at.length].map((at) => Math.floor(at / measured.size));
  return r >= 0 && c >= 0 && r < queries.at.length && c < keys.at.length ? `q${queries.from[r]}k${keys.from[c]}` : "";
}

/** What a layer of a hybrid is, beside its row. @param {State} state @param {(Head | null)[][]} lines of the row */
function besideRow(state, lines) {
  const head = lines[0]?.find((other) => other);
  const name = state.sort === "model" && !isFolded(state) && head ? kindOf(state).mixers?.[head.site.layer] : "";
  return name ? [make("div", { class: "row-kind" }, name)] : [];
}

/** The layers of a hybrid that have no heads, and so no row. @param {State} state */
function mixersSaid(state) {
  const { mixers = [] } = kindOf(state);
  const rows = new Set(kindOf(state).sites.map(({ layer }) => layer));
  /** @type {Map<string, number[]>} */
  const others = new Map();
  mixers.forEach((name, layer) => { if (!rows.has(layer) && name !== "attention") others.set(name, [...(others.get(name) || []), layer]); });
  return [...others].map(([name, layers]) => `Without heads: ${layers.length === 1 ? "layer" : "layers"} ${layers.join(", ")} (${name}).`);
}

/** What the colours of the maps mean. @param {State} state */
function drawLegend(state) {
  const colors = rampOf(state.palette);
  const steps = Array.from({ length: 17 }, (_, i) => `rgb(${colors.subarray(48 * i - 3 * Number(i === 16), 48 * i - 3 * Number(i === 16) + 3).join(" ")})`);
  const end = { map: `each map’s largest ${nounOf(state)}, by the square root`, row: `each row’s largest ${nounOf(state)}`, one: fullSaid(state) }[state.scale] || "";
  const masked = kindOf(state).sites.some(({ reach }) => reach && (reach.causal || reach.window !== null || reach.bits));
  const unselected = kindOf(state).sites.some(({ reach }) => reach?.unselected != null);
  fill(byId("overview-legend"), ...legend(steps, "0", end, masked, unselected));
}

/**
 * Mark a token's row or column in every map: the one that is pointed at, else the pinned one.
 * @param {State} state
 * @param {Token | null} over
 */
export function markToken(state, over) {
  const place = byId("overview-tiles");
  const axes = axesOf(state);
  const token = chosen(axes, state, over);
  if (token) place.dataset.token = token.side;
  else delete place.dataset.token;
  if (!token) return;
  const thick = measured.size / (token.side === "q" ? axes.queries : axes.keys).at.length;
  place.style.setProperty("--at", `${token.i * thick}px`);
  place.style.setProperty("--side", `${measured.size}px`);
  place.style.setProperty("--thick", `${Math.max(thick, 1)}px`);
}

/** How the heads stand. @param {State} state */
function drawSorts(state) {
  const names = { model: "by layer", role: "by role", likeness: "by likeness", value: "by value" };
  if (!byId("sorts").firstChild) fill(byId("sorts"), ...SORTS.map((sort) => make("button", { type: "button", "data-sort": sort }, names[sort])));
  const sorts = sortsOf(state);
  for (const button of byId("sorts").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.sort === state.sort));
    button.disabled = !sorts.some((sort) => sort === button.dataset.sort);
  }
  const every = byId("every");
  every.hidden = headsOf(state).length <= MANY || state.sort === "likeness";
  every.setAttribute("aria-pressed", String(state.every));
  every.textContent = `all ${several(state, headsOf(state).length)}`;
}

/** Where the pointer is. @type {{ button: HTMLElement, x: number, y: number } | null} */
let under = null;
/** @type {IntersectionObserver | null} */
let watcher = null;
/** @type {Map<Element, { canvas: HTMLCanvasElement, lines: (Head | null)[][] }>} */
const strips = new Map();
/** @type {ReturnType<typeof sizes>} */
let measured = { size: 0, gap: 0, strip: 0, across: 1 };
let built = "";
let seen = false;
let release = () => {};

/** @param {State} state */
function build(state) {
  const place = byId("overview-tiles");
  const room = windowHeight() - place.getBoundingClientRect().top - scrollY - BELOW;
  measured = sizes(state, place.clientWidth, Math.max(room, LEAST_HEIGHT));
  const { size, gap, strip } = measured;
  const key = JSON.stringify([state.text, kindOf(state).kind, kindOf(state).quantity, state.sort, state.every, state.tint, measured]);
  if (key === built) return;
  built = key;
  strips.clear();
  const rows = groupsOf(state, measured.across).map((group) => {
    const width = Math.max(...group.heads.map((line) => line.length)) * (size + gap);
    const height = group.heads.length * (size + strip + gap);
    const canvas = make("canvas", { "aria-hidden": "true" });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const tiles = make("div", { class: "tiles" }, canvas);
    tiles.style.width = `${width}px`;
    tiles.style.height = `${height}px`;
    group.heads.forEach((line, down) => line.forEach((head, across) => {
      if (!head) return;
      const button = make("button", { type: "button", class: "tile", tabindex: "-1", "data-head": head.id, "aria-label": labelled(state, head) });
      button.style.left = `${across * (size + gap)}px`;
      button.style.top = `${down * (size + strip + gap)}px`;
      button.style.width = `${size}px`;
      button.style.height = `${size + strip}px`;
      tiles.append(button);
    }));
    const title = make("div", { class: "row-title" }, state.sort === "model" ? make("span", { class: "hidden" }, "layer ") : "", group.title);
    if (state.sort === "model") title.style.flexBasis = `${sideOf(state)}px`;
    if (group.color) title.style.setProperty("--role", group.color);
    const row = make("div", { class: `row ${state.sort === "model" ? "model" : "role"}`, role: "group", "aria-label": state.sort === "model" ? `layer ${group.title}` : group.title }, title, tiles, ...besideRow(state, group.heads));
    strips.set(row, { canvas, lines: group.heads });
    return row;
  });
  const names = make("div", { class: "columns", "aria-hidden": "true" });
  if (state.sort === "model" && !isFolded(state)) {
    const widest = Math.max(...headsOf(state).map(({ data }) => data.index)) + 1;
    const every = size + gap >= 22 ? 1 : 4;
    for (let i = 0; i < widest; i += every) {
      const name = make("span", {}, String(i));
      name.style.left = `${SIDE + i * (size + gap) + size / 2}px`;
      names.append(name);
    }
  }
  fill(place, names, ...rows);
}

/** @param {Element} row */
async function drawRow(row) {
  const found = strips.get(row);
  if (!found) return;
  const heads = found.lines.flat().filter((head) => head !== null);
  const sites = [...new Set(heads.map(({ site }) => site))].filter((site) => !isLoaded(site));
  if (sites.length) await Promise.all(sites.map(load));
  const state = get();
  if (strips.get(row) !== found || !shows(state, "overview")) return;
  const { size, gap, strip } = measured;
  const wide = Math.max(...found.lines.map((line) => line.length));
  const painter = prepared(found.canvas, wide * (size + gap), found.lines.length * (size + strip + gap));
  const cells = Math.ceil(size * (devicePixelRatio || 1));
  found.lines.forEach((line, down) => line.forEach((head, across) => {
    if (head) drawTile(painter, state, head, across * (size + gap), down * (size + strip + gap), measured, cells);
  }));
}

/** Draw the lines of tiles that are on the screen, and the others once they come. */
function drawVisible() {
  watcher?.disconnect();
  release();
  track(new Promise((done) => { release = () => done(null); }));
  watcher = new IntersectionObserver((entries) => {
    const rows = entries.filter(({ isIntersecting }) => isIntersecting).map(({ target }) => target);
    for (const row of rows) watcher?.unobserve(row);
    track(Promise.all(rows.map(drawRow)).then(() => {
      if (!seen && rows.length) requestAnimationFrame(() => performance.mark("overview"));
      seen = true;
    }));
    release();
  }, { rootMargin: "200px" });
  for (const row of strips.keys()) watcher.observe(row);
}

/** @param {State} state */
function mark(state) {
  const on = new Set(state.on);
  const first = buttonOf(state.head);
  for (const button of byId("overview-tiles").querySelectorAll("button")) {
    const id = button.dataset.head || "";
    button.setAttribute("aria-pressed", String(on.has(id)));
    button.tabIndex = button === first ? 0 : -1;
  }
  if (!first) byId("overview-tiles").querySelector("button")?.setAttribute("tabindex", "0");
}

/**
 * The tile beside a head's, where only the strongest heads are shown: the first where it is none of them.
 * @param {Head} now
 * @param {number} dx
 * @param {number} dy
 */
export function tileBeside(now, dx, dy) {
  const lines = [...strips.values()].flatMap((strip) => strip.lines);
  const at = lines.findIndex((line) => line.includes(now));
  const line = lines[clamp(at + (at < 0 ? 1 : dy), 0, lines.length - 1)].filter((head) => head !== null);
  return line[clamp(at < 0 ? 0 : lines[at].indexOf(now) + dx, 0, line.length - 1)];
}

/** The tile of a head: of several the one in focus. @param {string} id */
function buttonOf(id) {
  const now = /** @type {HTMLElement | null} */ (document.activeElement);
  if (now?.classList.contains("tile") && now.dataset.head === id) return now;
  return /** @type {HTMLElement | null} */ (byId("overview-tiles").querySelector(`[data-head="${id}"]`));
}

export function startOverview() {
  const place = byId("overview-tiles");
  /** @param {Event} event */
  const headAt = (event) => /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.head;
  place.addEventListener("click", (event) => {
    const id = headAt(event);
    if (!id) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey) toggle(id);
    else {
      hidePreview();
      set({ view: get().view === "stage" ? "stage" : "map", head: id, on: [id] });
    }
  });
  place.addEventListener("pointerover", (event) => {
    const id = headAt(event);
    if (id && event.pointerType === "mouse") preview(id, event.target);
  });
  place.addEventListener("pointermove", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    under = button && { button, x: event.clientX, y: event.clientY };
  });
  place.addEventListener("pointerleave", () => {
    under = null;
    hidePreview();
  });
  byId("sorts").addEventListener("click", (event) => {
    const sort = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.sort;
    if (sort) set({ sort });
  });
  byId("every").addEventListener("click", () => set({ every: !get().every }));
  place.addEventListener("focusin", (event) => {
    const id = headAt(event);
    if (!id) return;
    if (id !== get().head) set({ head: id });
    if (/** @type {HTMLElement} */ (event.target).matches(":focus-visible")) preview(id, event.target);
  });
  place.addEventListener("focusout", hidePreview);
  addEventListener("scroll", hidePreview, { passive: true });
}

/** @type {import("./types.js").View} */
export const overview = {
  draw(state, changed) {
    drawSorts(state);
    drawTints(state);
    drawPlane(state);
    if (state.sort === "likeness") {
      byId("overview-tiles").hidden = true;
      return;
    }
    byId("overview-tiles").hidden = false; // what is hidden has no width to fill
    build(state);
    const { queries, keys } = axesOf(state);
    const nothing = !queries.at.length || !keys.at.length;
    byId("overview-tiles").hidden = nothing;
    const words = state.scale === "one" ? `full colour is ${fullSaid(state)}` : state.scale === "row" ? `each row by its largest ${nounOf(state)}` : `each map by its largest ${nounOf(state)}, colours by the square root so that small ones show`;
    const folded = isFolded(state) ? ` Of ${state.sort === "model" ? "every few layers" : "each group"} the strongest heads.` : "";
    const few = headsOf(state).some(({ data }) => data.roles[0]?.few) ? ` (${page.few} on fewer than ${page.fewRows} rows)` : "";
    const small = measured.size < NAMED;
    const coded = `Below a map: ${measured.size < SIGNED ? "the colour of " : small ? "" : `its ${kindOf(state).whole ? "layer" : "head"} and `}${tintSaid(state, "") || `${measured.size < SIGNED ? "" : "the sign of "}what it does, else of its sink${measured.size < SIGNED ? "" : few}.`}${small ? ` Pointing says which head it is${state.sort === "model" ? "; layers are numbered at the left, heads on top" : ""}.` : ""}`;
    const said = [` downwards, keys across; ${words}.${folded}`, coded, ...mixersSaid(state), ...cutSaid(state, isCut(state))].join(" ");
    drawLegend(state);
    markToken(state, null);
    const place = byId("overview-said");
    if (nothing) place.textContent = "Nothing is left to show: everything is hidden.";
    else if (place.textContent !== `Queries${said}`) fill(place, make("button", { type: "button", class: "term", ...term("query") }, "Queries"), said);
    if (!changed || [...changed].some((name) => !["head", "on", "pin", "find", "mix", "top", "least", "toward", "zoom"].includes(name))) {
      if (!nothing) drawVisible();
    }
    mark(state);
    if (changed?.has("head") && !changed.has("view") && byId("overview-tiles").contains(document.activeElement)) {
      buttonOf(state.head)?.focus();
    }
  },
  picture(painter, state) {
    if (state.sort === "likeness") return paintPlane(painter, state);
    const layout = sizes(state, 1200, Number.POSITIVE_INFINITY);
    const { size, gap, strip } = layout;
    const tones = ink();
    const cells = clamp(Math.floor(Math.sqrt(SAVED_CELLS / headsOf(state).length)), 6, 96);
    painter.text(`${itemOf(state).model}: ${kindOf(state).title}`, 12, 16, { size: 14, weight: 600, color: tones.text });
    painter.text([itemOf(state).label, ...cutSaid(state, isCut(state))].join("   "), 12, 35, { size: 11, color: tones.soft });
    let [y, widest] = [measureOf(state) ? 80 : 58, Math.max(400, paintTints(painter, state, 12, 54))];
    for (const group of groupsOf(state, layout.across)) {
      const side = state.sort === "model" ? 12 + sideOf(state) : 12;
      if (state.sort === "model") {
        painter.text(group.title, side - 8, y + size / 2, { size: 11, align: "right", color: tones.soft });
      } else {
        painter.text(group.title, 12, y, { size: 12, weight: 600, color: tones.text });
        y += 12;
      }
      for (const line of group.heads) {
        line.forEach((head, i) => {
          if (head) drawTile(painter, state, head, side + i * (size + gap), y, layout, cells);
        });
        widest = Math.max(widest, side + line.length * (size + gap));
        y += size + strip + gap;
      }
      if (state.sort !== "model") y += 12;
    }
    return { width: widest + 12, height: y + 8 };
  },
  focus: () => (get().sort === "likeness" ? planeCanvas() : buttonOf(get().head)),
  pointed: pairUnder,
  numbers(state) {
    if (state.sort === "likeness") return planeNumbers(state);
    const names = page.scores.flatMap(({ name }) => [name, `${name}_chance`, `${name}_lift`, `${name}_rows`]);
    const lines = [["head", "roles", ...names, ...numberNames()]];
    for (const head of headsOf(state)) {
      const values = head.data.scores.flatMap((value) => value.map((one) => (one === null ? "" : String(one))));
      lines.push([head.id, head.data.roles.map(({ title }) => title.replace(": ", ":")).join(" "), ...values, ...numbersOf(state, head.id)]);
    }
    return lines;
  },
};
