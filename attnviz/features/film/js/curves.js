// Loss, in-context score and the scores of heads over one axis of steps.
import { byId, fill, make } from "./dom.js";
import { fixed, shown, thousands } from "./numbers.js";
import { colorOf, count, data, share } from "./data.js";
import { get, set } from "./state.js";
import { draw } from "./svg.js";

/** @typedef {import("./types.js").Curve} Curve */
/** @typedef {{ curve: Curve, color: string, pale: boolean }} Line */

const LEFT = 46, RIGHT = 64, GAP = 32, HIGH = 104, TALL = 160;

/** The panels: a name, lines, and the ends of its axis. */
function panels() {
  const head = data.heads[get().head];
  /** @type {{ name: string, lines: Line[], low: number, high: number, tall: boolean, base: [string, number][] }[]} */
  const found = [];
  for (const [name, curve] of /** @type {[string, Curve | null][]} */ ([["loss (nats)", data.loss], ["in-context score (nats)", data.context]])) {
    if (!curve) continue;
    const base = name.startsWith("loss") ? data.baselines : [];
    const values = [...curve.mean.flatMap((one, n) => one === null ? [] : [one - (curve.half[n] || 0), one + (curve.half[n] || 0)]), ...base.map(([, one]) => one)];
    found.push({ name, lines: [{ curve, color: "", pale: false }], low: Math.min(...values), high: Math.max(...values), tall: false, base });
  }
  /** @type {Line[]} */
  const lines = data.formed.filter((one) => one.head !== get().head).map((one) => ({ curve: data.heads[one.head].scores[one.score], color: colorOf(one.role), pale: true }));
  const own = head.scores[head.score];
  if (own) lines.push({ curve: own, color: colorOf(head.role || ""), pale: false });
  const shares = data.shares.includes(head.score);
  found.push({ name: `${head.name}: ${head.score.replaceAll("_", " ")}`, lines, low: 0, high: shares ? 1 : Math.max(1, ...lines.flatMap(({ curve }) => curve.mean.map((one) => one || 0))), tall: true, base: [] });
  return found;
}

export function drawCurves() {
  const place = byId("curves");
  const width = Math.max(260, place.clientWidth);
  const inner = width - LEFT - RIGHT;
  const x = (/** @type {number} */ step) => LEFT + inner * share(step);
  const every = panels();
  const height = every.reduce((sum, { tall }) => sum + GAP + (tall ? TALL : HIGH), 0) + 22;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": spoken(every) });
  let top = 0;
  for (const { name, lines, low, high, tall, base } of every) {
    top += GAP;
    const tallness = tall ? TALL : HIGH;
    const bottom = top + tallness;
    const y = (/** @type {number} */ value) => bottom - tallness * (value - low) / (high - low || 1);
    for (const event of data.events) {
      const color = colorOf(event.name);
      if (event.low !== null && event.high !== null) picture.append(draw("rect", { class: "span", x: x(event.low), y: top, width: x(event.high) - x(event.low), height: tallness, fill: color }));
      picture.append(draw("line", { class: "mark", x1: x(event.step), x2: x(event.step), y1: top, y2: bottom, stroke: color }));
    }
    picture.append(draw("line", { class: "axis", x1: LEFT, x2: LEFT + inner, y1: bottom, y2: bottom }), draw("text", { class: "name", x: 0, y: top - 12 }, name));
    for (const value of [low, (low + high) / 2, high]) picture.append(draw("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, fixed(value, 2)));
    let free = Infinity;
    for (const [label, value] of [...base].sort((a, b) => a[1] - b[1])) {
      picture.append(draw("line", { class: "base", x1: LEFT, x2: LEFT + inner, y1: y(value), y2: y(value) }));
      if (free - y(value) < 13) continue;
      picture.append(draw("text", { x: LEFT + inner + 5, y: y(value) + 4 }, label.slice(0, 12)));
      free = y(value);
    }
    for (const line of lines) picture.append(...drawn(line, x, y));
    top = bottom;
  }
  const now = x(data.steps[get().step]);
  picture.append(draw("line", { class: "now", x1: now, x2: now, y1: GAP, y2: top }));
  for (const [n, step] of data.steps.entries()) {
    if (n === 0 || n === count - 1 || (data.steps.length > 4 && n === count >> 1)) picture.append(draw("text", { x: x(step), y: top + 16, "text-anchor": n === 0 ? "start" : n === count - 1 ? "end" : "middle" }, thousands(step)));
  }
  fill(place, picture);
  const roles = [...new Set(data.formed.map(({ role }) => role))];
  fill(byId("key"), ...roles.map((role) => {
    const sign = make("i");
    sign.style.background = colorOf(role);
    return make("span", {}, sign, role);
  }));
}

/** @param {Line} line @param {(step: number) => number} x @param {(value: number) => number} y */
function drawn({ curve, color, pale }, x, y) {
  const known = curve.mean.flatMap((value, n) => value === null ? [] : [{ at: x(data.steps[n]), value, half: curve.half[n] || 0 }]);
  const path = known.map(({ at, value }) => `${at},${y(value)}`).join(" ");
  const band = [...known.map(({ at, value, half }) => `${at},${y(value + half)}`), ...known.reverse().map(({ at, value, half }) => `${at},${y(value - half)}`)].join(" ");
  const plain = color ? "" : " plain";
  const line = draw("polyline", { class: `curve${plain}${pale ? " pale" : ""}`, points: path, ...(color ? { stroke: color } : {}) });
  return pale ? [line] : [draw("polygon", { class: `band${plain}`, points: band, ...(color ? { fill: color } : {}) }), line];
}

/** What the curves say at this step. @param {ReturnType<typeof panels>} every */
function spoken(every) {
  const step = get().step;
  const said = every.map(({ name, lines }) => {
    const value = lines.at(-1)?.curve.mean[step];
    return value === null || value === undefined ? "" : `${name} ${shown(value)}`;
  });
  return `step ${data.steps[step]}: ${said.filter(Boolean).join(", ")}`;
}

export function startCurves() {
  const place = byId("curves");
  /** @param {PointerEvent} event */
  const point = (event) => {
    const box = place.getBoundingClientRect();
    const at = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    const apart = data.steps.map((step) => Math.abs(share(step) - at));
    set({ step: apart.indexOf(Math.min(...apart)) });
  };
  place.addEventListener("pointerdown", point);
  place.addEventListener("pointermove", (event) => {
    if (event.buttons) point(event);
  });
  addEventListener("resize", () => requestAnimationFrame(drawCurves));
}
