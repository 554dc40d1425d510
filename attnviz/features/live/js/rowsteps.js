// One row's way through its head, step by step: on request it plays, and else it stands still.
import { normText, scoreText } from "./digits.js";
import { byId, fill, make, say } from "./dom.js";
import { filed, fixed, plain, plural, signed } from "./numbers.js";
import { listedKeys, pathOf } from "./rowpath.js";
import { draw } from "./svg.js";

/** @typedef {import("./rowpath.js").RowPath} RowPath */
/**
 * The row that is shown: what it is made of, its query and the key that is asked about, what both are
 * called, how a weight is written and how far it can be off, and the norm of what the head adds to the
 * residual stream there, where it is known.
 * @typedef {object} Row
 * @property {import("./reason.js").Terms} terms
 * @property {Float32Array} values
 * @property {number} r
 * @property {number} c
 * @property {string} query
 * @property {(s: number) => string} key
 * @property {(weight: number) => string} weightText
 * @property {number} error
 * @property {boolean} causal whether no query sees later keys
 * @property {number | null} written
 * @property {(s: number) => void} choose another key
 */

/** What a step is called, and what is known from it on. */
const STEPS = ["q, k", "q·k", "÷ √d", "mask", "softmax", "× V", "sum"];
const [VECTORS, DOT, SCALE, MASK, SOFTMAX, VALUES, SUM] = STEPS.keys();
/** Milliseconds from step to step: four seconds in all. */
const PACE = 660;
/** Keys that are listed, and masked ones. */
const LISTED = 10;
const MASKED = 2;

let shown = SUM;
/** @type {number | undefined} */
let playing;
/** @type {{ row: Row, path: RowPath } | null} */
let current = null;
/** Whether it is to play once it is drawn. */
let waiting = false;

export function startRow() {
  const steps = STEPS.map((name, n) => {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => { stop(); go(n, true); });
    return button;
  });
  fill(byId("path-steps"), ...steps);
  byId("path-steps").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = steps[steps.indexOf(/** @type {HTMLButtonElement} */ (event.target)) + (step || 0)];
    if (!step || !next) return;
    next.focus();
    next.click();
    event.preventDefault();
  });
  byId("path-play").addEventListener("click", () => (playing ? stop() : play()));
  addEventListener("beforeprint", () => { stop(); go(SUM); });
}

/** Play as soon as the row is there. */
export function playRow() {
  waiting = true;
}

/** From the step after this one, or from the start; all at once where nothing is to move. */
function play() {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return go(SUM, true);
  go(shown < SUM ? shown + 1 : VECTORS);
  playing = setInterval(() => {
    if (shown + 1 >= SUM) stop();
    go(shown + 1, shown + 1 === SUM);
  }, PACE);
  fill(byId("path-play"), "pause");
}

function stop() {
  clearInterval(playing);
  playing = undefined;
  fill(byId("path-play"), "▶ play");
}

/** @param {number} step @param {boolean} [aloud] */
function go(step, aloud = false) {
  shown = step;
  showStep();
  if (aloud && current) say(told(current, shown));
}

/** Nothing is shown any more. */
export function leaveRow() {
  if (playing) stop();
  [current, waiting, shown] = [null, false, SUM];
}

/** What has been reached is seen. */
function showStep() {
  const box = byId("path");
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll("[data-at]"))) {
    part.classList.toggle("ahead", Number(part.dataset.at) > shown);
    part.classList.toggle("now", Number(part.dataset.at) === shown);
  }
  box.classList.toggle("barred", shown >= MASK);
  box.classList.toggle("weighed", shown >= VALUES);
  for (const [n, button] of [...byId("path-steps").children].entries()) button.setAttribute("aria-pressed", String(n === shown));
  fill(byId("path-said"), current ? told(current, shown) : "");
}

/** What happens in a step. @param {{ row: Row, path: RowPath }} drawn @param {number} step */
function told({ row: { terms, query, error, causal, written }, path }, step) {
  const { width, scale } = terms;
  const barred = path.scores.filter((score) => score === -Infinity).length;
  const off = (terms.off ?? 0) * scale;
  return [
    `q is what ${query} looks for, k what each token can be found by: ${width} numbers each.`,
    "Each key’s product with q: the sum over all numbers of q times k.",
    `Products of vectors with ${width} numbers spread about √${width} times as far as the numbers, so they are divided by ${fixed(1 / scale, 2)}.`,
    !causal ? "This model masks no key: every token sees all others." : barred ? `${plural(barred, "later key")} may not be seen: the score becomes −∞, and the weight 0.` : "The last token sees all keys: nothing is masked.",
    `e^(score − ${signed(path.top, off)}) over the sum of the row, ${plain(path.total, error * path.total)}: weights that add up to 1.`,
    "Each key’s value v times its weight: little is left where that is small.",
    `The sum of what is left, of length ${normText(Math.hypot(...path.mixed))}, leaves the head.${written === null ? "" : written ? ` Through W_O it adds ${normText(written)} to the residual stream.` : " The head is off: nothing of it is passed on."}`,
  ][step];
}

/**
 * Numbers as bars up and down, on a scale.
 * @param {ArrayLike<number>} values
 * @param {number} most the number of a full bar
 * @param {string} name
 * @param {number} [share] of its height that is left
 */
function strip(values, most, name, share = 1) {
  const numbers = Array.from(values);
  const bars = (/** @type {number} */ sign) => numbers.map((value, i) => (sign * value > 0 ? `M${i + 0.5} 0V${filed(-value / most)}` : "")).join("");
  const svg = draw("svg", { viewBox: `0 -1 ${numbers.length} 2`, preserveAspectRatio: "none", role: "img", "data-most": most,
    "aria-label": `${name}: ${plural(numbers.length, "number")} from ${signed(Math.min(...numbers))} to ${signed(Math.max(...numbers))}` },
    draw("path", { class: "more", d: bars(1) }), draw("path", { class: "less", d: bars(-1) }));
  svg.style.setProperty("--share", String(share));
  return svg;
}

/** Draw a row; whether it plays from now on, as was asked. @param {Row} row */
export function drawRow(row) {
  const { terms: { width, keys, scale }, values, r, c, query, key, weightText, choose } = row;
  const path = pathOf(row.terms, values, r);
  const { listed, rest, blocked } = listedKeys(path, c, LISTED, MASKED);
  const part = (/** @type {ArrayLike<number>} */ rows, /** @type {number} */ s) => Array.from({ length: width }, (_, i) => rows[s * width + i]);
  const most = (/** @type {ArrayLike<number>} */ rows) => Math.max(1e-12, ...listed.flatMap((s) => part(rows, s).map(Math.abs)));
  const [ofKeys, ofValues, root] = [most(keys), Math.max(most(values), ...path.mixed.map(Math.abs)), 1 / scale];
  const cell = (/** @type {number} */ at, /** @type {string} */ kind, /** @type {number | null} */ value, /** @type {(Node | string)[]} */ ...inside) =>
    make("td", { class: kind, "data-at": at, "data-value": value === null ? false : value }, ...inside);
  const lines = listed.map((s) => {
    const [masked, weight, name] = [path.scores[s] === -Infinity, path.weights[s], key(s)];
    const choice = make("button", { type: "button", class: "link", title: name }, make("bdi", {}, name));
    choice.addEventListener("click", () => choose(s));
    const score = scoreText(path.dots[s] / root);
    const line = make("tr", { "data-key": s, class: masked ? "masked" : false, ...(s === c ? { "aria-current": "true" } : {}) },
      make("th", { scope: "row" }, choice),
      cell(VECTORS, "path-strip", null, strip(part(keys, s), ofKeys, `k of ${name}`)),
      cell(DOT, "", path.dots[s], scoreText(path.dots[s], root)),
      cell(SCALE, "", path.dots[s] * scale, masked ? make("span", { class: "path-barred" }, score) : score),
      cell(SOFTMAX, "path-weight", weight, masked ? "0" : weightText(weight)),
      cell(VALUES, "path-strip", null, masked ? "" : strip(part(values, s), ofValues, `v of ${name}`, weight)));
    line.style.setProperty("--share", String(weight));
    return line;
  });
  if (rest.length) {
    const sum = rest.reduce((all, s) => all + path.weights[s], 0);
    const added = part(values, 0).map((_, i) => rest.reduce((all, s) => all + path.weights[s] * values[s * width + i], 0));
    const line = make("tr", { "data-key": "rest" }, make("th", { scope: "row", "data-at": VECTORS }, `${rest.length} more`), make("td", {}), make("td", {}), make("td", {}),
      cell(SOFTMAX, "path-weight", sum, weightText(sum)), cell(VALUES, "path-strip", null, strip(added, ofValues, `α v of ${plural(rest.length, "other key")}`)));
    line.style.setProperty("--share", String(sum));
    const firstMasked = lines.findIndex((one) => one.classList.contains("masked"));
    lines.splice(firstMasked < 0 ? lines.length : firstMasked, 0, line);
  }
  const unseen = blocked - listed.filter((s) => path.scores[s] === -Infinity).length;
  const head = /** @type {[string, number][]} */ ([["key", VECTORS], ["k", VECTORS], ["q·k", DOT], [`÷ ${fixed(root, 2)}`, SCALE], ["weight", SOFTMAX], ["α v", VALUES]]);
  current = { row, path };
  const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest("#path-row tr"))?.dataset.key;
  fill(byId("path-row"),
    make("div", { class: "path-whole", "data-at": VECTORS }, make("span", {}, "q of ", make("bdi", {}, query)), strip(path.q, Math.max(1e-12, ...path.q.map(Math.abs)), `q of ${query}`)),
    make("table", {}, make("thead", {}, make("tr", {}, ...head.map(([name, at]) => make("th", { scope: "col", "data-at": at }, name)))), make("tbody", {}, ...lines)),
    ...(unseen ? [make("p", { class: "small", "data-at": MASK }, `${plural(unseen, "more key")} masked`)] : []),
    make("div", { class: "path-whole path-sum", "data-at": SUM }, make("span", {}, "their sum"), strip(path.mixed, ofValues, "the sum")));
  if (focused) /** @type {HTMLElement | null} */ (byId("path-row").querySelector(`[data-key="${focused}"] button`))?.focus({ preventScroll: true });
  showStep();
  if (!waiting) return false;
  [waiting, shown] = [false, SUM];
  stop();
  play();
  byId("path-play").focus({ preventScroll: true });
  byId("path").scrollIntoView({ block: "nearest" });
  return true;
}
