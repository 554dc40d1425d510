import { fill, make } from "./dom.js";
import { filed, plain, plural, signed } from "./numbers.js";
import { fromWhere } from "./fromwhere.js";
import { reasonOf } from "./reason.js";

/** @typedef {import("./reason.js").Terms} Terms */
/** @typedef {import("./reason.js").Reason} Reason */
/**
 * What is explained: the weight of query `r` on key `c`, how both and all keys are called, the
 * weight as a text, how far it can be off, the same where the page shows it, and what else must be
 * said.
 * @typedef {object} Asked
 * @property {Terms} terms
 * @property {number} r
 * @property {number} c
 * @property {string} head
 * @property {string} query
 * @property {(s: number) => string} key
 * @property {(weight: number) => string} weightText
 * @property {number} error
 * @property {string} shown
 * @property {string[]} said
 * @property {(head: string) => void} [jump] shows another head
 * @property {boolean} [rowElsewhere] whether the page shows the softmax of the row in a place of its own
 */

/** Products and keys that are named. */
const NAMED = 5;
const KEYS = 6;
const STRIP = 38;
const GAP = 17;
let sorted = true;

/** The dimensions as they are drawn. @param {Reason} reason */
function order({ products }) {
  const all = [...products.keys()];
  return sorted ? all.sort((a, b) => products[b] - products[a]) : all;
}

/**
 * Query, key and their products, a bar a dimension.
 * @param {HTMLCanvasElement} canvas
 * @param {Reason} reason
 * @param {number} width
 */
function strips(canvas, reason, width) {
  const ratio = devicePixelRatio || 1;
  const height = 3 * (STRIP + GAP);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  /** @param {string} name */
  const color = (name) => style.getPropertyValue(name).trim();
  const shown = order(reason);
  const step = width / shown.length;
  context.font = `${Math.max(11, 0.75 * Number.parseFloat(style.fontSize))}px ${style.fontFamily}`;
  context.textBaseline = "top";
  const rows = /** @type {const} */ ([["q", reason.q], ["k", reason.k], ["q × k", reason.products]]);
  rows.forEach(([name, values], n) => {
    const top = n * (STRIP + GAP);
    const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-12);
    context.fillStyle = color("--soft");
    context.fillText(`${name}   largest ${plain(most)}`, 0, top + 2);
    const middle = top + GAP + STRIP / 2;
    shown.forEach((i, at) => {
      const high = (values[i] / most) * (STRIP / 2 - 1);
      context.fillStyle = color(high < 0 ? "--mark" : "--strong");
      context.fillRect(at * step, Math.min(middle, middle - high), Math.max(step - (step > 3 ? 1 : 0), 0.5), Math.abs(high));
    });
    context.fillStyle = color("--line");
    context.fillRect(0, middle - 0.5, width, 1);
  });
}

/** @param {Reason} reason */
function largest({ products, off }) {
  const found = [...products.keys()].sort((a, b) => Math.abs(products[b]) - Math.abs(products[a])).slice(0, NAMED);
  return found.map((i) => `${i}: ${signed(products[i], off / products.length)}`).join(", ");
}

/**
 * From q·k to the weight, and to what is written with it: what, how much, how.
 * @param {Asked} asked
 * @param {Reason} reason
 * @returns {[string, string, string][]}
 */
function steps({ terms, r, c, weightText, error, shown }, reason) {
  const { scale, softcap, sink, bias, allowed, written, turned } = terms;
  const noun = written ? "‖f(x)‖" : "‖v‖";
  const off = reason.off;
  /** @type {[string, string, string][]} */
  const lines = [
    ["q·k", signed(reason.dot, off), `the sum of ${plural(reason.q.length, "product")}${turned ? "; q and k turned by their positions" : ""}`],
  ];
  // what softmax takes is the scaled product itself, where nothing is done to that
  const alone = softcap === null && !(bias && allowed(r, c)) && allowed(r, c);
  if (!alone) lines.push(["scaled", signed(reason.scaled, off * scale), `times ${filed(scale, 4)}`]);
  if (softcap !== null) lines.push(["capped", signed(reason.capped, off * scale), `${softcap} tanh(score / ${softcap})`]);
  if (bias && allowed(r, c)) lines.push(["bias", signed(reason.added), "added for the position, or by a mask"]);
  if (!allowed(r, c)) lines.push(["blocked", "−∞", "the query may not attend to this key"]);
  lines.push(["score", signed(reason.row[c], off * scale), alone ? `q·k times ${filed(scale, 4)}, which softmax takes` : "what softmax takes"]);
  if (sink !== null) lines.push(["sink", signed(sink), "the score of a learned sink that is no key"]);
  const keys = Number.isFinite(reason.top);
  lines.push(["numerator", plain(reason.powers[c], error * reason.total), keys ? `e^(score − top); the row's top score is ${signed(reason.top, off * scale)}` : "a row without any key"]);
  if (keys) lines.push(["sum", plain(reason.total, error * reason.total), `of the numerators of the row's keys${sink === null ? "" : " and of the sink"}`]);
  lines.push(["weight", weightText(reason.weight), `${keys ? "numerator over sum; " : ""}${shown}`]);
  lines.push([noun, plain(reason.norm), `of the key's value${written ? ", through W_O" : "; W_O is not known"}`]);
  lines.push([`α${noun}`, plain(reason.weight * reason.norm, error * reason.norm), "what the head writes for this key"]);
  return lines;
}

/**
 * The row's scores: the keys with the largest weights, this one, a sink, the rest, the sum.
 * @param {Asked} asked
 * @param {Reason} reason
 */
function softmax({ terms, c, key, weightText, error }, reason) {
  const { row, powers, total, sinkPower } = reason;
  const all = [...row.keys()].filter((s) => powers[s] > 0).sort((a, b) => powers[b] - powers[a]);
  const listed = all.slice(0, KEYS);
  if (!listed.includes(c) && powers[c] > 0) listed.push(c);
  /** @param {string} name @param {string} score @param {number} power @param {boolean} here @param {string} weight */
  const line = (name, score, power, here = false, weight = total ? weightText(power / total) : "") => {
    const bar = make("span", { class: "why-part" });
    bar.style.width = `${total ? (100 * power) / total : 0}%`;
    return make("tr", here ? { "aria-current": "true" } : {},
      make("th", { scope: "row" }, make("bdi", {}, name)), make("td", {}, score), make("td", {}, plain(power, error * total)), make("td", {}, weight, bar));
  };
  const lines = listed.map((s) => line(key(s), signed(row[s], reason.off * terms.scale), powers[s], s === c));
  const rest = all.filter((s) => !listed.includes(s));
  if (rest.length) lines.push(line(`${rest.length} more`, "", rest.reduce((sum, s) => sum + powers[s], 0)));
  if (terms.sink !== null) lines.push(line("the sink", signed(terms.sink), sinkPower));
  lines.push(line("sum", "", total, false, total ? "1" : "0"));
  return make("table", { class: "why-row" },
    make("thead", {}, make("tr", {}, ...["key", "score", "e^…", "weight"].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...lines));
}

/** Explain one weight. @param {HTMLElement} place @param {Asked} asked */
export function drawReason(place, asked) {
  const { terms, r, c, head, query, key, said } = asked;
  const reason = reasonOf(terms, r, c);
  const canvas = make("canvas", { role: "img", "aria-label": `query, key and their products in ${plural(reason.q.length, "dimension")}; largest products ${largest(reason)}` });
  const turn = make("button", { type: "button", class: "why-order", "aria-pressed": String(sorted) }, "sorted by product");
  turn.addEventListener("click", () => {
    sorted = !sorted;
    drawReason(place, asked);
    /** @type {HTMLElement | null} */ (place.querySelector(".why-order"))?.focus();
  });
  fill(place,
    make("p", {}, `Head ${head}, from `, make("bdi", { class: "why-token" }, query), " to ", make("bdi", { class: "why-token" }, key(c))),
    canvas,
    make("p", { class: "small" }, turn, ` a bar a dimension; largest products ${largest(reason)}`),
    make("table", { class: "why-steps" }, make("tbody", {}, ...steps(asked, reason).map(([name, value, how]) =>
      make("tr", { "data-step": name }, make("th", { scope: "row" }, name), make("td", {}, value), make("td", {}, how))))),
    ...(asked.rowElsewhere ? [] : [make("h3", {}, "The row’s softmax"), softmax(asked, reason)]),
    ...fromWhere(asked, reason),
    ...said.map((text) => make("p", { class: "small" }, text)));
  strips(canvas, reason, place.clientWidth);
}
