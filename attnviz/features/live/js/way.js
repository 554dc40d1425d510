import { byId, fill, make } from "./dom.js";
import { figure, fixed } from "./numbers.js";
import { probability, scoreText, weightText } from "./digits.js";
import { label, named } from "./headmap.js";
import { get, set } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Network} Network */

export function startWay() {
  byId("places").addEventListener("click", () => set({ places: !get().places }));
}

/**
 * The way of one position: its token, what the heads of every layer write there, the next word.
 * @param {Answer} answer
 * @param {Network} network
 */
export function drawWay(answer, { heads, causal }) {
  const { ids, idsAfter, at, passage, words, after } = answer;
  const { head: chosen, off, places } = get();
  const read = idsAfter || ids;
  fill(byId("way-token"), label(read[at]));
  fill(byId("way-place"), places ? `+ place ${at}` : "+ the mean place");
  const button = byId("places");
  button.setAttribute("aria-pressed", String(!places));
  const most = Math.max(1e-9, ...passage.flatMap(({ written }) => written));
  fill(byId("way-layers"), ...passage.map(({ written, guess }, layer) => {
    const bars = written.map((norm, number) => {
      const id = `${layer}.${number}`;
      const bar = make("button", { type: "button", class: "way-head", tabindex: "-1", "data-way": id, "aria-pressed": String(id === chosen), title: `${id}${off.has(id) ? ", off" : ""}: writes ${figure(norm)} here`, "aria-label": `head ${id} writes ${figure(norm)} here` }, make("i", {}));
      bar.style.setProperty("--norm", String(norm / most));
      bar.addEventListener("click", () => set({ head: id }));
      return bar;
    });
    const said = guess ? make("span", { class: "way-guess", title: "what the LM head would say if the layers ended here (logit lens)" }, `${label(guess.id)} `, make("span", { class: "soft" }, probability(guess.share))) : "";
    return make("div", { class: "way-layer" }, make("span", { class: "small" }, `layer ${layer}`), make("span", { class: "way-heads" }, ...bars), said);
  }));
  byId("way-layers").style.setProperty("--heads", String(heads));
  const share = (/** @type {import("./types.js").Word} */ word) => (after ? word.after : word.before);
  const best = words?.length ? words.reduce((a, b) => (share(b) > share(a) ? b : a)) : null;
  byId("way-end").hidden = !best;
  if (best) fill(byId("way-next"), make("b", {}, label(best.id)), ` ${probability(share(best))}`);
  fill(byId("way-end-title"), causal ? "next token" : "token here");
  drawReason(answer, chosen);
}

/** One weight in a line: the product, the score, the share. @param {Answer} answer @param {string} head */
function drawReason(answer, head) {
  const { at, after, before, ids } = answer;
  const [layer, number] = head.split(".").map(Number);
  const scores = answer.scoresAfter || answer.scoresBefore;
  const row = (/** @type {Float32Array} */ maps) => maps.subarray((number * ids.length + at) * ids.length, (number * ids.length + at + 1) * ids.length);
  const weights = row((after || before)[layer]);
  const key = get().key !== null && /** @type {number} */ (get().key) < scores.length ? /** @type {number} */ (get().key) : weights.indexOf(Math.max(...weights));
  const root = 1 / answer.scale;
  fill(byId("way-why"), make("b", {}, `head ${head}`), ` ${named(answer, at)} → ${named(answer, key)}: q·k ${scoreText(scores[key], root)} ÷ ${fixed(root, 2)} = ${scoreText(scores[key] / root)}, softmax ${weightText(weights[key])}`);
}
