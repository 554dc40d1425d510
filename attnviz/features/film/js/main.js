// A film of heads: a slider over checkpoints moves curves, the grid of heads, and the card of one.
import { drawCard, startCard } from "./card.js";
import { drawCurves, startCurves } from "./curves.js";
import { count, data, unpack } from "./data.js";
import { byId, fill, make, say } from "./dom.js";
import { startFrame } from "./frame.js";
import { drawGrid, startGrid } from "./grid.js";
import { fromHash, get, set, subscribe } from "./state.js";

const PACE = 450;
const slider = /** @type {HTMLInputElement} */ (byId("step"));
const play = byId("play");

/** @type {number | undefined} */
let playing;

function draw() {
  const { step } = get();
  const said = `${data.steps[step].toLocaleString("en")} (${step + 1} of ${count})`;
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

async function start() {
  startFrame(draw);
  fill(byId("origin"), data.origin);
  fill(byId("told"), ...data.told.map((line) => make("li", {}, line)));
  fill(byId("methods"), ...data.methods.map((line) => make("p", {}, line)));
  fill(byId("events"), ...data.events.map((event) => {
    const button = make("button", { type: "button" }, `${event.name}: ${event.step.toLocaleString("en")}`);
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
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

void start();
