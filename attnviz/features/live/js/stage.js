import { probability, weightText } from "./digits.js";
import { byId, fill, make } from "./dom.js";
import { get, page, set, turnOff } from "./store.js";
import { draw } from "./svg.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Opening} Opening */

/** Pixels that an arc rises over the words, and by which the second begins beside the first. */
const RISE = 58;
const ASIDE = 7;
/** What is still seen of an arc whose weight is 0. */
const FAINT = 0.06;

/** The answer that was drawn last. @type {Answer | null} */
let current = null;
/** Ids of tokens that are not shown, and whether pieces are written together with "##". */
let [hidden, pieces] = [new Set([0]), false];

/** @param {import("./types.js").Vocabulary} vocabulary */
export function startStage({ special, mask, kind }) {
  hidden = new Set(special.filter((id) => id !== mask));
  pieces = kind === "wordpieces";
  byId("stage-switch").addEventListener("click", () => {
    const head = page.opening?.switch;
    if (head) turnOff([head], !get().off.has(head));
  });
  byId("stage-words").addEventListener("click", (event) => {
    const head = /** @type {HTMLElement} */ (event.target).dataset.head;
    if (head) set({ head });
  });
}

/** What the page opens on: a word, the heads that look from there, and a switch: while its text stands there. @param {Answer} answer */
export function drawStage(answer) {
  const { opening } = page;
  const { text, step, other, places } = get();
  const here = opening !== null && text === opening.text && step < 0 && other === null && places;
  // another token is looked at: what was drawn stays, and what was not is not shown
  const elsewhere = here && opening.answer !== null && answer.at !== opening.at;
  byId("stage").hidden = !here || (elsewhere && !current);
  if (!here || elsewhere) return;
  current = answer;
  const { at, looks } = opening;
  const word = wordOf(answer);
  const off = opening.switch !== null && get().off.has(opening.switch);
  fill(byId("stage-word"), plainText(opening.answer ?? answer.ids[at]));
  fill(byId("stage-share"), word ? probability(answer.after ? word.after : word.before) : "");
  fill(byId("stage-was"), !word ? "and the words beside it" : answer.after ? `${probability(word.before)} with all heads on` : page.causal ? "is what comes next" : "is what fits best there");
  fill(byId("stage-said"), sentence(answer, opening, off));
  const button = byId("stage-switch");
  button.hidden = opening.switch === null;
  fill(button, `switch ${opening.switch} ${off ? "on" : "off"}`);
  button.setAttribute("aria-pressed", String(off));
  const marks = new Map([...looks].reverse().map(({ key }, n) => [key, n < looks.length - 1 && opening.answer !== null ? "before" : "found"])).set(at, "from");
  fill(byId("stage-words"), ...answer.ids.flatMap((id, place) => (hidden.has(id) ? [] : [
    ...(joined(id) ? [] : [" "]),
    make("span", { "data-place": place, class: marks.get(place) ?? false }, plainText(id)),
  ])));
  drawArcs();
}

/** The word that is predicted. @param {Answer} answer */
function wordOf({ words }) {
  return words?.find(({ id }) => id === page.opening?.answer);
}

/** What the arcs say. @param {Answer} answer @param {Opening} opening @param {boolean} off whether the head of the switch is off */
function sentence(answer, { at, answer: id, looks: [first, second] }, off) {
  const named = (/** @type {number} */ place) => `“${plainText(answer.ids[place])}”`;
  const [said, seen] = [first, second].map((look) => (look ? weightText(weight(answer, look)) : "")).map((text) => (text === "1" ? "nearly all" : text));
  const place = named(first.query);
  if (id === null) return `At ${named(at)} head ${first.head} looks at the word before it, ${named(first.key)}, with ${said} of its weight, and head ${second.head} at the word behind it, ${named(second.key)}, with ${seen}. Both were chosen for that.`;
  if (!second) {
    return off
      ? `With head ${first.head} off, what it read at ${named(first.key)} is gone, and with it most of what spoke for “${plainText(id)}”. Which heads the model needs on other texts is another question: attnviz ablate.`
      : `From ${place} head ${first.head} looks at ${named(first.key)}, with ${said} of its weight. Of all heads that look at one word from there it is the one that “${plainText(id)}” depends on most: switch it off.`;
  }
  const below = Number(first.head.split(".")[0]) - Number(second.head.split(".")[0]);
  return off
    ? `With head ${second.head} off, head ${first.head} has lost the place: ${said} of its weight at the last ${place} is left on ${named(first.key)}. Which heads the model needs on other texts is another question: take a lesson, or attnviz ablate.`
    : `At the last ${place} head ${first.head} looks at ${named(first.key)}, with ${said} of its weight. How does it know the place? ${below === 1 ? "One layer" : `${below} layers`} below, head ${second.head} looks from ${named(first.key)} at the word before it (${seen}).`;
}

/** What the stage shows, in a sentence; nothing where it shows nothing. */
export function stageHeadline() {
  const { opening } = page;
  if (byId("stage").hidden || !opening || !current) return "";
  const [first, second] = opening.looks;
  const named = (/** @type {number} */ place) => `“${plainText(/** @type {Answer} */ (current).ids[place])}”`;
  if (opening.answer === null) return `Heads ${first.head} and ${second.head} of ${page.model} look from ${named(opening.at)} at the words beside it, ${named(first.key)} and ${named(second.key)}`;
  const word = wordOf(current);
  if (!word) return "";
  const name = `“${plainText(opening.answer)}”`;
  if (current.after) return `${page.model} gives ${name} ${probability(word.after)} with ${[...get().off].join(", ")} off, and ${probability(word.before)} with all heads on`;
  return second
    ? `${page.model} expects ${name}, ${probability(word.before)}: head ${first.head} looks at where it stood before, and head ${second.head} had marked the place`
    : `${page.model} puts ${name} in the gap, ${probability(word.before)}: head ${first.head} looks from there at ${named(first.key)}`;
}

/** Again where the words have moved. */
export function moveArcs() {
  if (current && !byId("stage").hidden) drawArcs();
}

function drawArcs() {
  if (!current || !page.opening) return;
  const answer = current;
  const { off } = get();
  const field = byId("stage-field").getBoundingClientRect();
  const layer = byId("stage-arcs");
  layer.setAttribute("viewBox", `0 0 ${field.width} ${field.height}`);
  layer.replaceChildren(...page.opening.looks.flatMap((look, n) =>
    arc(place(look.query), place(look.key), off.has(look.head) ? 0 : weight(answer, look), look.head, n ? "writer" : "reader", n ? ASIDE : -ASIDE)));
}

/** The upper middle of a word, in the field. @param {number} t @returns {[number, number]} */
function place(t) {
  const field = byId("stage-field").getBoundingClientRect();
  const box = /** @type {HTMLElement} */ (byId("stage-words").querySelector(`[data-place="${t}"]`)).getBoundingClientRect();
  return [box.left + box.width / 2 - field.left, box.top - field.top];
}

/**
 * An arc with its head's name at the top and a point at its end.
 * @param {[number, number]} from @param {[number, number]} to @param {number} share @param {string} head @param {string} name @param {number} aside
 */
function arc([x0, y0], [x1, y1], share, head, name, aside) {
  const rise = Math.min(RISE, 18 + Math.abs(x0 - x1) / 5);
  const [from, top] = [x0 + aside, Math.min(y0, y1) - rise];
  const path = draw("path", { class: name, d: `M${from} ${y0}C${from} ${top} ${x1} ${top} ${x1} ${y1 - 3}M${x1 - 5} ${y1 - 10}L${x1} ${y1 - 2}L${x1 + 5} ${y1 - 10}` });
  path.style.setProperty("--share", String(Math.max(FAINT, share)));
  const above = y0 > y1 + 4 ? 22 : 6; // of an arc from a line below, so that two names keep apart
  const title = draw("text", { class: name, x: 0.6 * from + 0.4 * x1, y: Math.min(y0, y1) - 0.75 * rise - above }, head);
  return [path, title];
}

/** A weight as the page is, with heads off where some are. @param {Answer} answer @param {import("./types.js").Look} look */
function weight({ ids, before, after }, { head, query, key }) {
  const [layer, number] = head.split(".").map(Number);
  return (after || before)[layer][(number * ids.length + query) * ids.length + key];
}

/** @param {number} id */
function plainText(id) {
  return page.labels[id].replace(pieces ? /^##/ : /^·/, "");
}

/** Whether a token belongs to what stands before it. @param {number} id */
function joined(id) {
  return pieces ? /^(##|[.,;:!?]$)/.test(page.labels[id]) : !page.labels[id].startsWith("·");
}
