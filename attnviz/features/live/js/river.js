import { byId, chip, fill, make, say } from "./dom.js";
import { factsOf } from "./facts.js";
import { fixed } from "./numbers.js";
import { normText, probability, scoreText, weightText } from "./digits.js";
import { label, named } from "./headmap.js";
import { get, set } from "./store.js";
import { drawSublayers, startSublayers, sublayer } from "./sublayers.js";
import { draw } from "./svg.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Network} Network */

/** Pixels of the river where it is widest, of the largest dot, and of the smallest that is seen. */
const [WIDEST, LARGEST, LEAST] = [56, 40, 5];
/** Weights that a thread is drawn for, and keys that are named. */
const SEEN = 0.02;
const NAMED = 3;

/** More layers than these have no room beside each other, and are folded at first. */
const FLAT = 8;

/** The dot of every head, in their order. @type {Map<string, HTMLElement>} */
const dots = new Map();
/** @type {Answer | null} */
let current = null;
/** The head whose dot is pointed at or has the focus, and the layer whose heads are listed. @type {string | null} */
let pointed = null;
/** @type {number | null} */
let listed = null;

/** A block for every layer. @param {Network} network */
export function startRiver({ layers, heads, preNorm }) {
  startSublayers(preNorm);
  byId("places").addEventListener("click", () => set({ places: !get().places }));
  const fold = /** @type {HTMLDetailsElement} */ (byId("river-fold"));
  fold.open = byId("river-summary").hidden = layers <= FLAT;
  fold.addEventListener("toggle", () => { if (current) drawRiver(current); });
  byId("river-layers").append(...Array.from({ length: layers }, (_, layer) => block(layer, heads)));
}

/** @param {number} layer @param {number} heads */
function block(layer, heads) {
  const [first, mlp, second, norm] = [sublayer("first", layer, make("i", {})), sublayer("mlp", layer, make("i", {})), sublayer("second", layer, make("i", {})), sublayer("norm", layer)];
  const open = make("button", { type: "button", class: "river-name", "aria-expanded": "false", "aria-controls": "river-heads", title: "its heads, one by one" }, `layer ${layer}`);
  const whole = make("div", { class: "river-layer", role: "group", "aria-label": `layer ${layer}` },
    make("p", { class: "river-speech" }), make("div", { class: "river-parts" },
      make("div", { class: "river-branch" }, make("div", { class: "river-dots" }, ...Array.from({ length: heads }, (_, head) => dot(`${layer}.${head}`))), first),
      make("div", { class: "river-branch" }, mlp, second)),
    make("div", { class: "river-foot" }, open, norm));
  whole.addEventListener("click", (event) => { if (!(/** @type {Element} */ (event.target).closest(".river-head, .river-part"))) list(listed === layer ? null : layer); });
  return whole;
}

/** @param {string} id */
function dot(id) {
  const made = make("button", { type: "button", class: "river-head", "data-dot": id }, make("i", {}));
  made.addEventListener("click", () => set({ head: id }));
  made.addEventListener("pointerenter", () => look(id));
  made.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") look(null); });
  made.addEventListener("focus", () => { look(id); if (current && !hides()) say(looksAt(current, id)); });
  made.addEventListener("blur", () => look(null));
  made.addEventListener("keydown", (event) => {
    const all = [...dots.values()];
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    all[all.indexOf(made) + step]?.focus();
    event.preventDefault();
  });
  dots.set(id, made);
  return made;
}

/** Whether a lesson asks what would be seen. */
function hides() {
  return /map/.test(document.documentElement.dataset.hides || "");
}

/** The row of a head at the position that is shown. @param {Answer} answer @param {string} head */
function rowOf({ ids, at, before, after }, head) {
  const [layer, number] = head.split(".").map(Number);
  const from = (number * ids.length + at) * ids.length;
  return (after || before)[layer].subarray(from, from + ids.length);
}

/**
 * The way of one position through the model: what enters, what every head and MLP writes there, how
 * large the residual stream is after each layer, and what the LM head would say of it.
 * @param {Answer} answer
 */
export function drawRiver(answer) {
  current = answer;
  const { ids, idsAfter, at, passage, entering, words, after } = answer;
  const { head: chosen, off, places } = get();
  fill(byId("river-token"), label((idsAfter || ids)[at]));
  fill(byId("river-place"), `${places ? `+ place ${at}` : "+ the mean place"}: ${normText(entering)}`);
  byId("places").setAttribute("aria-pressed", String(!places));
  bed([entering, ...passage.map(({ size }) => size)]);
  const most = Math.max(1e-9, ...passage.flatMap(({ written, fed }) => [...written, fed]));
  const side = (/** @type {number} */ norm) => `${fixed(Math.max(LEAST, LARGEST * Math.sqrt(norm / most)), 1)}px`;
  const share = (/** @type {import("./types.js").Word} */ word) => (after ? word.after : word.before);
  const best = words?.length ? words.reduce((a, b) => (share(b) > share(a) ? b : a)) : null;
  const blocks = /** @type {HTMLElement[]} */ ([...byId("river-layers").querySelectorAll(".river-layer")]);
  passage.forEach(({ written, fed, size, guess }, layer) => {
    const [speech, parts, foot] = /** @type {HTMLElement[]} */ ([...blocks[layer].children]);
    const last = layer === passage.length - 1;
    const said = guess || (last && best ? { id: best.id, share: share(best) } : null);
    speech.hidden = !said;
    if (said) fill(speech, make("span", { class: "small" }, last ? "says:" : "would say:"), " ", make("b", {}, label(said.id)), " ", make("span", {}, probability(said.share)));
    /** @type {HTMLElement} */ (parts.querySelector(".river-mlp")).style.setProperty("--side", side(fed));
    fill(/** @type {HTMLElement} */ (foot.lastElementChild), normText(size));
    written.forEach((value, number) => {
      const id = `${layer}.${number}`;
      const made = /** @type {HTMLElement} */ (dots.get(id));
      const { role, said: does } = factsOf(id);
      const asked = hides(); // what it does would be an answer
      const says = `head ${id}, ${off.has(id) ? "off" : `writes ${normText(value)} here`}${asked ? "" : `; ${does}`}`;
      made.setAttribute("aria-label", says);
      made.title = says;
      made.tabIndex = id === chosen ? 0 : -1;
      made.setAttribute("aria-current", String(id === chosen));
      made.classList.toggle("out", off.has(id));
      made.style.setProperty("--side", side(value));
      made.style.setProperty("--role", role && !asked ? role.color : "var(--soft)");
    });
  });
  byId("river-lens").hidden = !passage.some(({ guess }) => guess);
  describe();
  drawSublayers(answer);
  look(pointed);
}

/** The residual stream, at every border between layers as wide as its norm there. @param {number[]} sizes */
function bed(sizes) {
  const most = Math.max(...sizes);
  const half = sizes.map((size) => size / most / 2);
  const side = (/** @type {number} */ sign) => half.map((part) => 0.5 + sign * part);
  /** @param {number[]} edge @param {number} step */
  const along = (edge, step) => edge.slice(1).map((y, n) => {
    const x = step > 0 ? n + 1 : edge.length - 2 - n;
    return `C${x - step / 2} ${edge[n]} ${x - step / 2} ${y} ${x} ${y}`;
  }).join("");
  const [upper, lower] = [side(-1), side(1).reverse()];
  byId("river-bed").replaceChildren(draw("path", { d: `M0 ${upper[0]}${along(upper, 1)}L${sizes.length - 1} ${lower[0]}${along(lower, -1)}Z` }));
  byId("river-bed").setAttribute("viewBox", `0 0 ${sizes.length - 1} 1`);
  byId("river-layers").style.setProperty("--bed", `${WIDEST}px`);
}

/** Threads from a head's dot to the tokens that it looks at, and what it does in a line. @param {string | null} id */
function look(id) {
  pointed = id;
  if (!current || byId("river").offsetParent === null) return;
  byId("threads").replaceChildren(...(id && !hides() ? threads(current, id) : []));
  line(current);
}

/** @param {Answer} answer @param {string} id */
function threads(answer, id) {
  const middle = (/** @type {Element} */ element, /** @type {number} */ down) => {
    const [box, field] = [element, byId("course")].map((one) => one.getBoundingClientRect());
    return [box.left + box.width / 2 - field.left, box.top + down * box.height - field.top];
  };
  const row = rowOf(answer, id);
  const [x, y] = middle(/** @type {HTMLElement} */ (dots.get(id)), 0.5);
  const shown = byId("tokens").getBoundingClientRect();
  return [...row.keys()].filter((s) => row[s] >= SEEN).flatMap((s) => {
    const [token, { top }] = [byId(`token-${s}`), byId("course").getBoundingClientRect()];
    const [to, up] = middle(token, 1);
    // tokens that are scrolled away have no end to draw to
    if (up + top < shown.top || up + top > shown.bottom + 2) return [];
    const path = draw("path", { d: `M${x} ${y}C${x} ${(y + up) / 2} ${to} ${(y + up) / 2} ${to} ${up}`, "stroke-width": 1 + 7 * row[s], opacity: 0.35 + 0.6 * row[s], "data-key": s });
    path.style.stroke = factsOf(id).role?.color || "var(--soft)";
    return [path];
  });
}

/** @param {Answer} answer @param {string} id */
function looksAt(answer, id) {
  const row = rowOf(answer, id);
  const best = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, NAMED).filter((s) => row[s] >= 0.01);
  return `looks at ${best.map((s) => `${named(answer, s)} ${weightText(row[s])}`).join(", ")}`;
}

/** The head that is pointed at, or one weight of the chosen one: the product, the score, the share. @param {Answer} answer */
function line(answer) {
  const { head, key } = get();
  if (pointed && pointed !== head) {
    const [layer, number] = pointed.split(".").map(Number);
    return fill(byId("river-why"), make("b", {}, `head ${pointed}`), ` ${looksAt(answer, pointed)}; writes ${normText(answer.passage[layer].written[number])}; ${factsOf(pointed).said}`);
  }
  const scores = answer.after ? answer.scoresAfter : answer.scoresBefore;
  if (!scores) return fill(byId("river-why"), make("b", {}, `head ${head}`), ` ${looksAt(answer, head)}`); // of scores with a bug
  const weights = rowOf(answer, head);
  const at = key !== null && key < scores.length ? key : weights.indexOf(Math.max(...weights));
  const root = 1 / answer.scale;
  fill(byId("river-why"), make("b", {}, `head ${head}`), ` ${named(answer, answer.at)} → ${named(answer, at)}: q·k ${scoreText(scores[at], root)} ÷ ${fixed(root, 2)} = ${scoreText(scores[at] / root)}, softmax ${weightText(weights[at])}`);
}

/** List the heads of a layer, or of none. @param {number | null} layer */
function list(layer) {
  listed = layer;
  for (const [n, name] of byId("river-layers").querySelectorAll(".river-name").entries()) name.setAttribute("aria-expanded", String(n === layer));
  byId("river-heads").hidden = layer === null;
  fill(byId("river-heads"), ...[...dots.keys()].filter((id) => Number(id.split(".")[0]) === layer).map((id) => {
    const line = make("button", { type: "button", "data-listed": id });
    line.addEventListener("click", () => set({ head: id }));
    line.addEventListener("pointerenter", () => look(id));
    line.addEventListener("pointerleave", () => look(null));
    return line;
  }));
  describe();
}

/** What the heads that are listed do. */
function describe() {
  if (!current) return;
  for (const line of /** @type {HTMLElement[]} */ ([...byId("river-heads").children])) {
    const id = line.dataset.listed || "";
    const [layer, number] = id.split(".").map(Number);
    const { said, role } = factsOf(id);
    line.setAttribute("aria-current", String(id === get().head));
    fill(line, chip(role ? role.color : ""), make("b", {}, id), ` ${get().off.has(id) ? "off" : `writes ${normText(current.passage[layer].written[number])}`}; ${looksAt(current, id)}`, make("span", { class: "small" }, said));
  }
}
