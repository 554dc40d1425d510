import { byId, clamp } from "./dom.js";
import { windowHeight } from "./embed.js";
import { fixed, plural, wholePercent } from "./numbers.js";
import { headOf, headsOf, isLoaded, itemOf, kindOf, load, page, signOf } from "./data.js";
import { get, set, toggle } from "./store.js";
import { ink } from "./colors.js";
import { magnified, prepared } from "./painter.js";
import { hidePreview, preview } from "./preview.js";
import { track } from "./busy.js";
import { labelled, measureOf, paintTints, tintSaid, tone } from "./tints.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Painter} Painter */
/** @typedef {{ head: Head, x: number, y: number }} Dot where a head is drawn */

const MARGIN = 46;
/** A pointer takes the nearest dot within so many pixels. */
const REACH = 28;
/** A head large, beside the dots. */
const PREVIEW = 250;
/** What is not like the head pointed at. */
const FAINT = 0.22;

/** @type {Dot[]} */
let dots = [];
let pointed = "";

export function planeCanvas() {
  return /** @type {HTMLCanvasElement} */ (byId("plane-dots"));
}

/** @param {State} state */
function planeOf(state) {
  const { alike } = kindOf(state);
  return alike === null ? null : page.planes[alike];
}

/**
 * The heads most like one, with their distances, the nearest first; none where that is not known.
 * @param {State} state
 * @param {string} id
 */
export function nearest(state, id) {
  const [, , ...near] = planeOf(state)?.heads[id] || [0, 0];
  return near;
}

/** The same in words. @param {State} state @param {string} id */
function likes(state, id) {
  return `most alike: ${nearest(state, id).map(([other, far]) => `${other} at ${fixed(far, 2)}`).join(", ")}`;
}

/** How distances were measured. @param {State} state */
export function measured(state) {
  const plane = planeOf(state);
  if (!plane) return "";
  const { quantity, formula } = itemOf(state).kinds[0];
  const what = quantity === "weights" ? "attention" : `shares of ${formula}`;
  const of = plane.texts > 1 ? `${plural(plane.texts, "text")} of this page` : "this text";
  return `Jensen-Shannon distance (root of the mean divergence in bits; 0: the same, 1: nothing in common) of their ${what} over ${plural(plane.rows, "row")} of ${of}`;
}

/**
 * Every head's place in a picture, by one scale both ways: only distances mean something.
 * @param {State} state
 * @param {number} width
 * @param {number} height
 */
function laid(state, width, height) {
  const places = planeOf(state)?.heads || {};
  const heads = headsOf(state).filter(({ id }) => places[id]);
  const [xs, ys] = [0, 1].map((axis) => heads.map(({ id }) => Number(places[id][axis])));
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
  const found = heads.map((head, i) => ({
    head, x: width / 2 + (xs[i] - (left + right) / 2) * scale, y: height / 2 - (ys[i] - (low + high) / 2) * scale,
  }));
  return { scale, dots: found };
}

/**
 * Names beside dots, as many as there is room for; those given first are never left out.
 * @param {Painter} painter
 * @param {Dot[]} all
 * @param {Dot[]} first
 * @param {number} radius
 * @param {(head: Head) => string} sign what stands behind a name
 */
function named(painter, all, first, radius, sign) {
  const size = 11 * magnified();
  const tones = ink();
  /** @type {[number, number, number, number][]} */
  const taken = all.map(({ x, y }) => [x - radius, y - radius, x + radius, y + radius]);
  for (const dot of [...first, ...all.filter((one) => !first.includes(one))]) {
    const code = sign(dot.head);
    for (const text of code ? [`${dot.head.name} ${code}`, dot.head.name] : [dot.head.name]) {
      const [wide, gap, half] = [painter.measure(text, size), radius + 3, size * 0.6];
      const sides = [[gap, -half], [-gap - wide, -half], [-wide / 2, -gap - 2 * half], [-wide / 2, gap]];
      const boxes = sides.map(([dx, dy]) => /** @type {[number, number, number, number]} */ ([dot.x + dx, dot.y + dy, dot.x + dx + wide, dot.y + dy + 2 * half]));
      const must = first.includes(dot) && text === dot.head.name;
      const free = boxes.find(([l, t, r, b]) => !taken.some((box) => l < box[2] && r > box[0] && t < box[3] && b > box[1])) || (must ? boxes[0] : null);
      if (!free) continue;
      taken.push(free);
      painter.text(text, free[0], (free[1] + free[3]) / 2, { size, color: first.includes(dot) ? tones.text : tones.soft, weight: first.includes(dot) ? 600 : 400 });
      break;
    }
  }
}

/**
 * What colours mean, in lines below the dots.
 * @param {Painter} painter
 * @param {State} state
 * @param {number} width
 * @param {number} top
 * @returns {number} where it ends
 */
function legend(painter, state, width, top) {
  const tones = ink();
  const size = 11.5 * magnified();
  const shown = new Set(headsOf(state).map(signOf));
  let [x, y] = [12, top + size];
  if (measureOf(state)) {
    const end = paintTints(painter, state, x, y);
    if (headsOf(state).some((head) => tone(state, head).hatched)) {
      mark(painter, end + 24, y, 5, null, 1);
      painter.text("not measured", end + 34, y, { size, color: tones.soft });
    }
    return y + size;
  }
  for (const role of [...page.roles, null]) {
    if (!shown.has(role ? role.name : "")) continue;
    const text = role ? `${role.name} (${role.code})` : "no role";
    const wide = painter.measure(text, size) + 30;
    if (x > 12 && x + wide > width) [x, y] = [12, y + size * 1.7];
    mark(painter, x + 6, y, 5, role ? role.color : null, 1);
    painter.text(text, x + 16, y, { size, color: tones.soft });
    x += wide;
  }
  return y + size;
}

/**
 * @param {Painter} painter
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 * @param {string | null} color null: a ring
 * @param {number} opacity
 */
function mark(painter, x, y, radius, color, opacity) {
  const tones = ink();
  painter.dot(x, y, radius + 1, tones.paper);
  painter.dot(x, y, color ? radius : radius + 1, color || tones.soft, opacity);
  if (!color) painter.dot(x, y, radius - 0.5, tones.paper);
}

/**
 * @param {Painter} painter
 * @param {State} state
 * @param {number} width
 * @param {number} height of the dots; what explains them comes below
 * @param {string} id the head whose likes are shown
 */
function paint(painter, state, width, height, id) {
  const { scale, dots: all } = laid(state, width, height);
  const tones = ink();
  const radius = clamp(46 / Math.sqrt(all.length), 2.5, 8) * magnified();
  const here = all.find(({ head }) => head.id === id);
  const near = here ? nearest(state, id).flatMap(([other, far]) => all.filter(({ head }) => head.id === other).map((dot) => ({ dot, far }))) : [];
  for (const { dot } of near) if (here) painter.line(here.x, here.y, dot.x, dot.y, tones.strong, 1.5, 0.8);
  const strong = here ? [here, ...near.map(({ dot }) => dot)] : [];
  const on = new Set(state.on.length > 1 ? state.on : []);
  for (const dot of [...all.filter((one) => !strong.includes(one)), ...strong.reverse()]) {
    const opacity = here && !strong.includes(dot) ? FAINT : 1;
    const large = dot === here ? 1.5 * radius : radius;
    if (dot.head.id === state.head) painter.dot(dot.x, dot.y, large + 4, tones.mark, opacity);
    else if (on.has(dot.head.id)) painter.dot(dot.x, dot.y, large + 3, tones.text, opacity);
    mark(painter, dot.x, dot.y, large, tone(state, dot.head).color, opacity);
  }
  named(painter, all, here ? strong : all.filter(({ head }) => head.id === state.head), radius, (head) => (tone(state, head).color ? tone(state, head).sign : ""));
  const unit = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01].find((one) => one * scale < width / 4) || 0.005;
  painter.rect(12, height - 2, unit * scale, 2, tones.soft);
  painter.text(`distance ${unit}`, 12, height - 11 * magnified(), { size: 10.5 * magnified(), color: tones.soft });
  return { dots: all, height: legend(painter, state, width, height + 10) + 6 };
}

/** @param {State} state */
function said(state) {
  const kept = wholePercent(planeOf(state)?.kept || 0);
  return `Heads that look at the same lie close together: ${measured(state)}. The plane (classical scaling) keeps ${kept} of it; directions mean nothing. Point at a dot to see the three most like it, wherever they lie.${tintSaid(state) ? ` Beside a dot: ${tintSaid(state)}` : ""}`;
}

/** Draw the dots, if they are what the overview shows. @param {State} state */
export function drawPlane(state) {
  byId("plane").hidden = state.sort !== "likeness";
  if (state.sort !== "likeness") return;
  byId("overview-said").textContent = said(state);
  const width = Math.max(240, byId("plane").clientWidth);
  const top = byId("plane").getBoundingClientRect().top + scrollY;
  const height = clamp(windowHeight() - top - 56 * magnified(), 300, Math.max(300, 0.8 * width));
  const canvas = planeCanvas();
  const focused = document.activeElement === canvas && canvas.matches(":focus-visible");
  const id = pointed || (focused ? state.head : "");
  const trial = paint(prepared(canvas, width, height), state, width, height, id);
  const painter = prepared(canvas, width, trial.height);
  painter.rect(0, 0, width, trial.height, ink().paper);
  dots = paint(painter, state, width, height, id).dots;
  const head = headOf(state, state.head);
  canvas.setAttribute("aria-label", `${plural(dots.length, "head")} by likeness; ${head ? labelled(state, head) : ""}; ${likes(state, state.head)}`);
}

/** The dots for saving. @param {Painter} painter @param {State} state */
export function paintPlane(painter, state) {
  const tones = ink();
  const width = 1000;
  const { height } = paint(painter, state, width, 700, "");
  painter.text(`${itemOf(state).model}, ${kindOf(state).title}: heads by likeness`, 12, 16, { size: 14, weight: 600, color: tones.text });
  painter.text(measured(state), 12, 35, { size: 10.5, color: tones.soft });
  return { width, height };
}

/** @param {State} state */
export function planeNumbers(state) {
  const lines = [["head", "roles", "x", "y", "nearest", "distance", "second", "distance", "third", "distance"]];
  for (const { id, data } of headsOf(state)) {
    const [x, y, ...near] = planeOf(state)?.heads[id] || [0, 0];
    lines.push([id, data.roles.map(({ title }) => title.replace(": ", ":")).join(" "), String(x), String(y), ...near.flat().map(String)]);
  }
  return lines;
}

/**
 * The nearest head in a direction: within 45 degrees of it, else anywhere on that side.
 * @param {State} state
 * @param {Head} now
 * @param {number} dx
 * @param {number} dy downwards
 * @returns {Head} `now` where there is none
 */
export function beside(state, now, dx, dy) {
  const places = planeOf(state)?.heads || {};
  const [x, y] = places[now.id] || [0, 0];
  const ways = headsOf(state).flatMap((head) => {
    if (head === now || !places[head.id]) return [];
    const [right, down] = [places[head.id][0] - x, y - places[head.id][1]];
    const along = right * dx + down * dy;
    const across = Math.abs(right * dy) + Math.abs(down * dx);
    return along > 0 ? [{ head, far: Math.hypot(right, down), ahead: across <= along }] : [];
  });
  const ahead = ways.filter((way) => way.ahead);
  const [best] = (ahead.length ? ahead : ways).sort((a, b) => a.far - b.far);
  return best ? best.head : now;
}

/** @param {PointerEvent | MouseEvent} event */
function under(event) {
  const box = planeCanvas().getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const [best] = dots.map((dot) => ({ dot, far: Math.hypot(dot.x - x, dot.y - y) })).sort((a, b) => a.far - b.far);
  return best && best.far <= REACH ? best.dot : null;
}

/** @param {string} id */
function point(id) {
  if (id === pointed) return;
  pointed = id;
  hidePreview();
  drawPlane(get());
  const dot = dots.find(({ head }) => head.id === id);
  if (!dot) return;
  const show = () => {
    if (pointed !== id) return;
    const box = planeCanvas().getBoundingClientRect();
    const x = dot.x < box.width / 2 ? box.right - PREVIEW - 24 : box.left - 12;
    preview(id, { getBoundingClientRect: () => new DOMRect(x, box.top + 44, 0, 0) }, likes(get(), id));
  };
  if (isLoaded(dot.head.site)) show();
  else track(load(dot.head.site).then(show));
}

export function startPlane() {
  const canvas = planeCanvas();
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse") point(under(event)?.head.id || "");
  });
  canvas.addEventListener("pointerleave", () => point(""));
  canvas.addEventListener("click", (event) => {
    const id = under(event)?.head.id;
    if (!id) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey) return toggle(id);
    point("");
    set({ view: "map", head: id, on: [id] });
  });
  for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => drawPlane(get()));
  byId("card-body").addEventListener("click", (event) => {
    const id = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.head;
    if (!id) return;
    set({ head: id, on: [id] });
    byId("card-body").focus();
  });
}
