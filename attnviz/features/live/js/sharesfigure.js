import { scoreText, weightText } from "./digits.js";
import { byId, fill, make } from "./dom.js";
import { fixed } from "./numbers.js";
import { softmax } from "./figures.js";
import { named } from "./headmap.js";
import { get, set } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */

/** Keys that are drawn; of longer rows those with the largest scores. */
const MOST = 12;
/** @type {Answer | null} */
let current = null;

export function startShares() {
  byId("divisor").addEventListener("input", (event) => set({ divisor: Number(/** @type {HTMLInputElement} */ (event.target).value) }));
  byId("divisor-root").addEventListener("click", () => set({ divisor: null }));
}

/** The softmax of the row that is shown, at a divisor. @param {Answer | null} answer @param {number | null} divisor null: √d */
export function drawShares(answer, divisor) {
  current = answer;
  byId("shares").hidden = !current;
  if (!current) return;
  const [scores, root] = [current.scoresAfter || current.scoresBefore, 1 / current.scale];
  const by = divisor ?? root;
  const [found, usual] = [softmax(scores, by), softmax(scores, root)];
  const slider = /** @type {HTMLInputElement} */ (byId("divisor"));
  slider.max = String(Math.ceil(2 * root));
  if (slider !== document.activeElement || divisor === null) slider.value = String(by);
  fill(byId("divisor-said"), `${fixed(by, 2)} = √d${Math.abs(by - root) < 0.01 ? "" : ` × temperature ${fixed(by / root, 2)}`}`);
  const { head } = get();
  fill(byId("shares-said"), `head ${head}, row of ${named(current, current.at)}: q·k over ${fixed(by, 2)}, and its softmax`);
  const keys = [...scores.keys()].sort((a, b) => scores[b] - scores[a]).slice(0, MOST).sort((a, b) => a - b);
  fill(/** @type {HTMLElement} */ (byId("shares").querySelector("tbody")), ...keys.map((s) => {
    const [bar, ghost] = [make("span", { class: "bar" }), make("span", { class: "bar usual" })];
    bar.style.width = `${100 * found[s]}%`;
    ghost.style.width = `${100 * usual[s]}%`;
    return make("tr", {}, make("th", { scope: "row" }, named(/** @type {Answer} */ (current), s)), make("td", {}, scoreText(scores[s], root)), make("td", {}, scoreText(scores[s] / by, root / by)),
      make("td", {}, make("span", { class: "track" }, ghost, bar)), make("td", {}, weightText(found[s])));
  }));
}
