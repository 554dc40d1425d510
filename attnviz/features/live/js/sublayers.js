// What MLPs, normalizations and the residual stream do at the token that is shown, pointed at, focused or tapped.
import { bar, barLine } from "./bars.js";
import { normText } from "./digits.js";
import { byId, fill, make } from "./dom.js";
import { placeBeside } from "./words.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {"mlp" | "first" | "second" | "norm"} Kind an MLP, a normalization of attention or of the MLP, the residual stream */

/** @type {{ button: HTMLElement, kind: Kind, layer: number }[]} */
const parts = [];
/** @type {Answer | null} */
let current = null;
/** Whether normalizations stand before attention and MLP, or behind. */
let before = true;
/** @type {HTMLElement | null} */
let shown = null;

/** @param {boolean} preNorm */
export function startSublayers(preNorm) {
  before = preNorm;
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });
  addEventListener("scroll", () => show(shown && (shown === document.activeElement || shown.matches(":hover")) ? shown : null), { passive: true, capture: true });
}

/** A button that tells. Of all of them one is in the order of Tab, arrow keys go on. @param {Kind} kind @param {number} layer @param {...Node} inside */
export function sublayer(kind, layer, ...inside) {
  const button = make("button", { type: "button", class: `river-part river-${kind === "first" || kind === "second" ? "normed" : kind}`, tabindex: parts.length ? -1 : 0 }, ...inside);
  button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") show(button); });
  button.addEventListener("pointerleave", () => show(button === document.activeElement ? button : null));
  button.addEventListener("focus", () => {
    for (const part of parts) part.button.tabIndex = part.button === button ? 0 : -1;
    show(button);
  });
  button.addEventListener("blur", () => show(null));
  button.addEventListener("click", () => show(button));
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!step) return;
    parts[parts.findIndex((part) => part.button === button) + step]?.button.focus();
    event.preventDefault();
  });
  parts.push({ button, kind, layer });
  return button;
}

/** @param {Answer} answer */
export function drawSublayers(answer) {
  current = answer;
  for (const { button, kind, layer } of parts) button.setAttribute("aria-label", told(answer, kind, layer));
  if (shown) show(shown);
}

/** The residual stream before a layer. @param {Answer} answer @param {number} layer */
function entering({ passage, entering: first }, layer) {
  return layer ? passage[layer - 1].size : first;
}

/** @param {Kind} kind @param {number} layer */
function title(kind, layer) {
  if (kind === "norm") return `residual stream, layer ${layer}`;
  if (kind === "mlp") return `MLP of layer ${layer}`;
  return `normalization ${before ? "before" : "after"} ${kind === "first" ? "attention" : "the MLP"}, layer ${layer}`;
}

/**
 * What is known of a part: a name, a number, and whether it is a length that has a bar.
 * @param {Answer} answer @param {Kind} kind @param {number} layer
 * @returns {[string, number, boolean][]}
 */
function facts(answer, kind, layer) {
  const { attended, middle, fed, size, normed } = answer.passage[layer];
  if (kind === "norm") return [["before", entering(answer, layer), true], ["attention adds", attended, true], ["between", middle, true], ["MLP adds", fed, true], ["after", size, true]];
  if (kind === "mlp") return [["before", middle, true], ["MLP adds", fed, true], ["after", size, true]];
  const { mean, spread, reads, gives } = normed[kind === "first" ? 0 : 1];
  return [["mean", mean, false], ["std. deviation", spread, false], ["length read", reads, true], ["length given", gives, true]];
}

/** @param {Answer} answer @param {Kind} kind @param {number} layer */
function told(answer, kind, layer) {
  const start = kind === "mlp" ? `the MLP writes ${normText(answer.passage[layer].fed)} here; ` : kind === "norm" ? `${normText(answer.passage[layer].size)}: ` : "";
  return `${start}${title(kind, layer)}: ${facts(answer, kind, layer).map(([name, value]) => `${name} ${normText(value)}`).join(", ")}`;
}

/** What a part does, in a sentence. @param {Kind} kind */
function does(kind) {
  if (kind === "norm") return before ? "Lengths of this token’s vector, and of what is added to it." : "Lengths of this token’s vector, and of what is added to it; it is normalized after each.";
  if (kind === "mlp") return "What it adds to this token, beside the stream it adds to.";
  return "From each number of this token the mean is taken, then it is divided by the standard deviation and gets its own factor and bias.";
}

/** @param {HTMLElement | null} button */
function show(button) {
  const part = parts.find((one) => one.button === button);
  const box = byId("fact");
  shown = button;
  box.hidden = !part || !current;
  if (!part || !current || !button) return;
  const lines = facts(current, part.kind, part.layer);
  const most = Math.max(1e-12, ...lines.map(([, value, length]) => (length ? value : 0)));
  fill(box, make("strong", {}, title(part.kind, part.layer)),
    ...lines.map(([name, value, length]) => barLine(name, length ? bar(value / most) : make("div", {}), normText(value))),
    make("span", { class: "small" }, does(part.kind)));
  placeBeside(box, button);
}
