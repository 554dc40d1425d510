import { probability, weightText } from "./digits.js";
import { byId, fill, make } from "./dom.js";
import { get, page, set, turnOff } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Opening} Opening */

const SVG = "http://www.w3.org/2000/svg";
/** Pixels that an arc rises over the words, and by which the second begins beside the first. */
const RISE = 58;
const ASIDE = 7;
/** What is still seen of an arc whose weight is 0. */
const FAINT = 0.06;

/** The answer that was drawn last. @type {Answer | null} */
let current = null;

export function startStage() {
  const { opening } = page;
  if (!opening) return;
  const button = byId("stage-switch");
  button.addEventListener("click", () => turnOff([opening.writer], !get().off.has(opening.writer)));
  byId("stage-words").addEventListener("click", (event) => {
    const head = /** @type {HTMLElement} */ (event.target).dataset.head;
    if (head) set({ head });
  });
}

/** The word that is predicted, the two heads that find it, and their switch: while its text stands there. @param {Answer} answer */
export function drawStage(answer) {
  const { opening } = page;
  const { text, step, other, places } = get();
  const here = opening !== null && text === opening.text && step < 0 && other === null && places;
  byId("stage").hidden = !here;
  if (!here || answer.at !== answer.ids.length - 1) return;
  current = answer;
  const { reader, writer, key } = opening;
  const word = answer.words?.find(({ id }) => id === opening.answer);
  const off = get().off.has(writer);
  if (word) {
    fill(byId("stage-word"), plainText(opening.answer));
    fill(byId("stage-share"), probability(answer.after ? word.after : word.before));
    fill(byId("stage-was"), answer.after ? `${probability(word.before)} with all heads on` : "is what comes next");
  }
  const last = answer.ids.length - 1;
  const [said, seen] = [weightText(weight(answer, reader, last, key)), weightText(weight(answer, writer, key, key - 1))];
  const below = Number(reader.split(".")[0]) - Number(writer.split(".")[0]);
  const [end, there] = [plainText(answer.ids[last]), plainText(answer.ids[key])];
  fill(byId("stage-said"), off
    ? `With head ${writer} off, head ${reader} has lost the place: ${said} of its weight at the last “${end}” is left on “${there}”. Which heads the model needs on other texts is another question: take a lesson, or attnviz ablate.`
    : `At the last “${end}” head ${reader} looks at “${there}”, with ${said} of its weight. How does it know the place? ${below === 1 ? "One layer" : `${below} layers`} below, head ${writer} looks from “${there}” at the word before it (${seen}).`);
  const button = byId("stage-switch");
  fill(button, `switch ${writer} ${off ? "on" : "off"}`);
  button.setAttribute("aria-pressed", String(off));
  fill(byId("stage-words"), ...answer.ids.flatMap((id, place) => (special(id) ? [] : [
    ...(page.labels[id].startsWith("·") ? [" "] : []),
    make("span", { "data-place": place, class: place === last ? "from" : place === key ? "found" : place === key - 1 ? "before" : false }, plainText(id)),
  ])));
  drawArcs();
}

/** What the stage shows, in a sentence; nothing where it shows nothing. */
export function stageHeadline() {
  const { opening } = page;
  const word = opening && current?.words?.find(({ id }) => id === opening.answer);
  if (byId("stage").hidden || !opening || !current || !word) return "";
  const name = plainText(opening.answer);
  return current.after
    ? `${page.model} gives “${name}” ${probability(word.after)} with ${[...get().off].join(", ")} off, and ${probability(word.before)} with all heads on`
    : `${page.model} expects “${name}”, ${probability(word.before)}: head ${opening.reader} looks at where it stood before, and head ${opening.writer} had marked the place`;
}

/** Again where the words have moved. */
export function moveArcs() {
  if (current && !byId("stage").hidden) drawArcs();
}

function drawArcs() {
  if (!current || !page.opening) return;
  const { reader, writer, key } = page.opening;
  const last = current.ids.length - 1;
  const field = byId("stage-field").getBoundingClientRect();
  const layer = byId("stage-arcs");
  layer.setAttribute("viewBox", `0 0 ${field.width} ${field.height}`);
  layer.replaceChildren(
    ...arc(place(last), place(key), weight(current, reader, last, key), reader, "reader", -ASIDE),
    ...arc(place(key), place(key - 1), get().off.has(writer) ? 0 : weight(current, writer, key, key - 1), writer, "writer", ASIDE),
  );
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
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("class", name);
  path.setAttribute("d", `M${from} ${y0}C${from} ${top} ${x1} ${top} ${x1} ${y1 - 3}M${x1 - 5} ${y1 - 10}L${x1} ${y1 - 2}L${x1 + 5} ${y1 - 10}`);
  path.style.setProperty("--share", String(Math.max(FAINT, share)));
  const title = document.createElementNS(SVG, "text");
  title.setAttribute("class", name);
  title.setAttribute("x", String(0.6 * from + 0.4 * x1));
  const above = y0 > y1 + 4 ? 22 : 6; // of an arc from a line below, so that two names keep apart
  title.setAttribute("y", String(Math.min(y0, y1) - 0.75 * rise - above));
  title.textContent = head;
  return [path, title];
}

/** A weight as the page is, with heads off where some are. @param {Answer} answer @param {string} head @param {number} query @param {number} key */
function weight({ ids, before, after }, head, query, key) {
  const [layer, number] = head.split(".").map(Number);
  return (after || before)[layer][(number * ids.length + query) * ids.length + key];
}

/** @param {number} id */
function plainText(id) {
  return page.labels[id].replace(/^·/, "");
}

/** @param {number} id */
function special(id) {
  return /^<\|.*\|>$/.test(page.labels[id]);
}
