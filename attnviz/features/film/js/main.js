// A film of heads: a slider over checkpoints moves curves, the grid of heads, and the card of one.
import { drawCard, startCard } from "./card.js";
import { drawCurves, startCurves } from "./curves.js";
import { count, data, unpack } from "./data.js";
import { byId, fill, make, say } from "./dom.js";
import { thousands } from "./numbers.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { drawGrid, startGrid } from "./grid.js";
import { startHelpByKey } from "./help.js";
import { fromHash, get, set, subscribe } from "./state.js";
import { paintSvg } from "./svg.js";

const PACE = 450;
const slider = /** @type {HTMLInputElement} */ (byId("step"));
const play = byId("play");

/** @type {number | undefined} */
let playing;

function draw() {
  const { step } = get();
  const said = `${thousands(data.steps[step])} (${step + 1} of ${count})`;
  slider.value = String(step);
  slider.setAttribute("aria-valuetext", `step ${said}`);
  byId("at").textContent = said;
  drawCurves();
  drawGrid();
  drawCard();
}

/** Play from this step, or from the first where it is the last; or stop. @param {boolean} on */
function run(on) {
  clearInterval(playing);
  playing = undefined;
  play.setAttribute("aria-pressed", String(on));
  play.textContent = on ? "Pause" : "Play";
  if (!on) return;
  if (get().step === count - 1) set({ step: 0 });
  playing = setInterval(() => {
    if (get().step < count - 1) set({ step: get().step + 1 });
    if (get().step === count - 1) run(false);
  }, PACE);
}

/** Every curve, a line for each step. */
function* numbers() {
  yield ["step", "head", "score", "mean", "half_interval", "chance"];
  /** @type {[string, string, import("./types.js").Curve | null][]} */
  const curves = [["", "loss", data.loss], ["", "in_context", data.context]];
  for (const { name, scores, effect } of data.heads) {
    for (const [score, one] of Object.entries(scores)) curves.push([name, score, one]);
    curves.push([name, `effect_${data.metric}`, effect]);
  }
  for (const [head, score, one] of curves) {
    if (one) for (const [n, step] of data.steps.entries()) yield [String(step), head, score, ...[one.mean[n], one.half[n], one.chance].map((value) => String(value ?? ""))];
  }
}

async function start() {
  startFrame(draw);
  startHelpByKey([["← →", "on the slider: from step to step"], ["← ↑ ↓ →", "from head to head, and on the map from cell to cell"]]);
  startSaving("attnviz-film", (painter) => paintSvg(painter, /** @type {SVGSVGElement} */ (byId("curves").firstElementChild)), numbers);
  fill(byId("origin"), data.origin);
  byId("happened").hidden = !data.told.length;
  fill(byId("told"), ...data.told.map((line) => make("li", {}, line)));
  fill(byId("methods"), ...data.methods.map((line) => make("p", {}, line)));
  fill(byId("events"), ...data.events.map((event) => {
    const button = make("button", { type: "button" }, `${event.name}: ${thousands(event.step)}`);
    button.addEventListener("click", () => {
      run(false);
      set({ step: data.steps.indexOf(event.step) });
      say(`step ${event.step}`);
    });
    return button;
  }));
  slider.max = String(count - 1);
  slider.addEventListener("input", () => {
    run(false);
    set({ step: Number(slider.value) });
  });
  play.addEventListener("click", () => run(playing === undefined));
  startGrid();
  startCurves();
  startCard();
  await unpack();
  subscribe(draw);
  fromHash();
  addEventListener("hashchange", fromHash);
}

void start();
