import { byId, fill, make, say } from "./dom.js";
import { fixed, plural } from "./numbers.js";
import { ask, startEngine } from "./engine.js";
import { failed, startFrame } from "./frame.js";
import { drawRiver, startRiver } from "./river.js";
import { startSaving } from "./download.js";
import { rolesText, tellRoles } from "./facts.js";
import { startHeads } from "./headsfigure.js";
import { drawGrid, drawRoles, drawSwitches, startGrid } from "./grid.js";
import { drawMaps, label, startMaps } from "./headmap.js";
import { cells, drawWhole, headline } from "./saved.js";
import { startKeys } from "./keys.js";
import { drawLesson, drawStep, startLessons } from "./lesson.js";
import { drawNext, drawWords } from "./nextwords.js";
import { startShares } from "./sharesfigure.js";
import { askedFor, flush, fromHash, get, page, seedFrom, set, subscribe, topKFrom, topPFrom } from "./store.js";
import { tokenizer } from "./tokenizer.js";
import { drawStage, moveArcs, startStage } from "./stage.js";
import { drawWhy, lacks, startWhy } from "./why.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").State} State */

/** @type {import("./types.js").Network} */
const network = JSON.parse(byId("network").textContent || "");
const box = /** @type {HTMLTextAreaElement} */ (byId("text"));
/** What of the state the network is asked about. */
const NEEDS_RUN = /** @type {const} */ (["text", "off", "at", "head", "places", "other", "bug"]);
/** How a token is drawn. */
const SAMPLING = /** @type {const} */ (["temperature", "topK", "topP", "seed"]);
/** After so many milliseconds without a change roles are measured again. */
const PAUSE = 250;
/** For so many milliseconds a button says what it did. */
const SAID = 2500;
/** @type {number | undefined} */
let measuring;
/** Questions so far: the page is busy until the newest one is answered. */
let questions = 0;
/** @type {Answer | null} */
let current = null;

/** Heads by number, from those by name. @param {Set<string>} off */
function numbers(off) {
  return page.heads.flatMap(({ id }, number) => (off.has(id) ? [number] : []));
}

/**
 * Run the model on what the state says and show it.
 * @param {number} [write] tokens that it shall add
 * @param {boolean} [roles] measure them, too
 */
async function run(write = 0, roles = false) {
  const state = get();
  const { text, off, at, temperature, topK, topP, seed, why, places, other, bug } = state;
  const [head] = numbers(new Set([state.head]));
  const question = ++questions;
  clearTimeout(measuring); // what waits for the network is not to be replaced by that
  document.documentElement.dataset.busy = "1";
  const answer = await ask({
    text, off: numbers(off), at, write, temperature, topK, topP, seed, opened: why === null ? null : head, head, places, other, bug, asked: askedFor(state), roles,
  });
  if (write && answer.ids.length) {
    if (answer.added) box.value += answer.added;
    set({ text: box.value, at: null, key: null });
  }
  if (answer.roles) tellRoles(text, answer.roles, network.rules);
  show(answer);
  if (question !== questions) return;
  if (rolesText() !== text && answer.ids.length) measuring = setTimeout(() => run(0, true), PAUSE);
  document.documentElement.dataset.busy = "0";
}

/** @param {Answer} answer */
function show(answer) {
  current = answer.ids.length ? answer : null;
  // a token alone looks at itself, which says nothing
  document.documentElement.classList.toggle("empty", answer.ids.length < 2 || !box.value.trim());
  if (!current) {
    fill(byId("said"), "type a text");
    fill(byId("tokens"));
    byId("next").hidden = true;
    return;
  }
  const { ids, at, cut, milliseconds } = current;
  fill(byId("said"), `${plural(ids.length, "token")}, ${fixed(milliseconds, milliseconds < 10 ? 1 : 0)} ms${cut ? `; ${cut} beyond the model's ${network.maxTokens} left out` : ""}`);
  const special = new Set(network.vocabulary.special);
  fill(byId("tokens"), ...ids.map((id, t) => make("span",
    { role: "option", id: `token-${t}`, class: special.has(id) ? "token special" : "token", "aria-selected": String(t === at) }, label(id))));
  byId("tokens").setAttribute("aria-activedescendant", `token-${at}`);
  draw();
}

function draw() {
  if (!current) return;
  drawNext(current, network.causal);
  drawStage(current);
  if (document.documentElement.classList.contains("empty")) return;
  drawWhy(current); // which takes its room before maps do
  drawRoles();
  drawGrid(current);
  drawMaps(current);
  drawWords(current, network.causal);
  drawLesson(current);
  drawRiver(current);
}

/** @param {State} state @param {Set<keyof State>} changed */
function react(state, changed) {
  if (changed.has("text") && box.value !== state.text) box.value = state.text;
  if (SAMPLING.some((name) => changed.has(name))) drawSampling();
  drawSwitches();
  if (NEEDS_RUN.some((name) => changed.has(name)) || (current && lacks(current))) run();
  else draw();
  drawStep();
}

/** The address into the clipboard; the button says whether it is there. */
async function copyLink() {
  const button = byId("copy-link");
  flush();
  let said = "link copied";
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    said = "not copied: the link is this page’s address";
  }
  fill(button, said);
  say(said);
  setTimeout(() => fill(button, "copy link"), SAID);
}

function drawSampling() {
  const { temperature, topK, topP, seed } = get();
  /** @type {HTMLInputElement} */ (byId("temperature")).value = String(temperature);
  for (const [id, value] of [["top-k", topK || ""], ["top-p", topP < 1 ? topP : ""], ["seed", seed]]) {
    const number = /** @type {HTMLInputElement} */ (byId(String(id)));
    if (number !== document.activeElement) number.value = String(value);
    number.disabled = !temperature;
  }
  fill(byId("temperature-said"), temperature ? fixed(temperature, 1) : "0: greedy");
}

/** What to type. */
function wanted() {
  const { causal, words, vocabulary } = network;
  if (!words) return "Type a sentence, and see where every head looks";
  if (causal) return "Type how a text begins: the model says what comes next";
  return vocabulary.mask === null ? "Type a sentence" : `Type a sentence with ${label(vocabulary.mask)} in place of a word: the model says which`;
}

function start() {
  if (typeof DecompressionStream === "undefined" || typeof Worker === "undefined") {
    failed("this browser cannot unpack the model (no DecompressionStream); use Chrome 103, Firefox 113, Safari 16.4 or newer");
    return;
  }
  startFrame(draw);
  startGrid();
  startMaps();
  startWhy(network.causal);
  startLessons(network.width / network.heads);
  startShares();
  startHeads();
  startRiver(network);
  startStage(network.vocabulary);
  startKeys(network.rules);
  startSaving("attnviz-live", (painter) => drawWhole(painter, current), () => cells(current), { headline: () => headline(current) });
  box.addEventListener("input", () => set({ text: box.value, at: null, key: null, other: null }));
  byId("write-one").addEventListener("click", () => run(1));
  byId("write-ten").addEventListener("click", () => run(10));
  byId("writing").hidden = !network.causal || !network.words;
  byId("temperature").addEventListener("input", (event) => set({ temperature: Number(/** @type {HTMLInputElement} */ (event.target).value) }));
  byId("seed").addEventListener("input", (event) => set({ seed: seedFrom(/** @type {HTMLInputElement} */ (event.target).value) ?? get().seed }));
  byId("top-k").addEventListener("input", (event) => set({ topK: topKFrom(/** @type {HTMLInputElement} */ (event.target).value) }));
  byId("top-p").addEventListener("input", (event) => set({ topP: topPFrom(/** @type {HTMLInputElement} */ (event.target).value) }));
  for (const id of ["top-k", "top-p", "seed"]) byId(id).addEventListener("blur", drawSampling);
  byId("tokens").addEventListener("click", (event) => {
    const [, t] = /^token-(\d+)$/.exec(/** @type {HTMLElement} */ (event.target).id) || [];
    if (t !== undefined) set({ at: Number(t) });
  });
  byId("tokens").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !current) return;
    set({ at: Math.min(Math.max(current.at + step, 0), current.ids.length - 1) });
    event.preventDefault();
  });
  byId("copy-link").addEventListener("click", copyLink);
  let resizing = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(draw);
    moveArcs();
  });
  fill(byId("notes"), ...page.notes.map((note) => make("p", {}, note)));
  startEngine((milliseconds, fast) => {
    document.documentElement.dataset.ready = fixed(milliseconds, 0);
    document.documentElement.dataset.engine = fast ? "WebAssembly" : "JavaScript";
    byId("notes").append(make("p", {}, `Matrices are multiplied in ${fast ? "WebAssembly, four numbers at once" : "plain JavaScript"}.`));
  }, failed);
  subscribe(react);
  box.value = get().text;
  box.placeholder = wanted();
  addEventListener("hashchange", fromHash);
  fromHash();
  drawSampling();
  drawSwitches();
  run();
}

/** For the browser's console: what every head does with a text, `off` such as ["2.4"]; and ids. */
Object.assign(globalThis, {
  attnviz: {
    /** @param {string[]} lines */
    encode: (lines) => lines.map(tokenizer(network.vocabulary)),
    /** @param {string} text @param {string[]} [off] @param {number} [write] @param {number} [temperature] @param {number} [seed] @param {number} [topK] @param {number} [topP] @param {string} [bug] in layer 0 */
    run: (text, off = [], write = 0, temperature = 0, seed = 0, topK = 0, topP = 1, bug = "") => ask({ text, off: numbers(new Set(off)), at: null, write, temperature, topK, topP, seed, opened: null, head: 0, places: true, other: null, bug, asked: "", roles: false }),
  },
});

start();
