import { byId } from "./dom.js";
import { isLoaded, itemOf, kindOf, loadAll, page, sceneOf, titleOf } from "./data.js";
import { drawn, fromHash, get, shows, subscribe, VIEWS } from "./store.js";
import { overview, startOverview } from "./overview.js";
import { hidePreview } from "./preview.js";
import { startPlane } from "./plane.js";
import { startTints } from "./tints.js";
import { map, startMap } from "./map.js";
import { linesView, startLines } from "./lines.js";
import { startText, textView } from "./text.js";
import { sceneView, startScene } from "./sceneview.js";
import { card, counted, startCard } from "./card.js";
import { drawLead, stage, startStage } from "./stage.js";
import { drawControls, startControls } from "./controls.js";
import { startKeys } from "./keys.js";
import { startSave } from "./save.js";
import { drawWho, startWho } from "./who.js";
import { asksSpans, drawSpans, startSpans } from "./spans.js";
import { isReady, prepareScene } from "./scene.js";
import { drawWhy, startWhy } from "./why.js";
import { asksPair } from "./rank.js";
import { secondOf, sitesRanked, sitesShown } from "./second.js";
import { drawBeside, startBeside } from "./beside.js";
import { startMost } from "./most.js";
import { track } from "./busy.js";
import { failed, startPage, tell } from "./frame.js";
import { loadAhead, startPrint } from "./print.js";
import { hideTip } from "./tip.js";
import { startHost } from "./host.js";

/** @typedef {import("./types.js").State} State */

/** @type {Record<string, import("./types.js").View>} */
const views = { stage, overview, map, lines: linesView, text: textView, scene: sceneView, card };

/** Whether there is room for the panel beside the views. */
const BESIDE = matchMedia("(min-width: 1181px)");

let turn = 0;
/** Whether the panel stood open beside the view that was drawn last. @type {boolean | null} */
let stood = null;

/**
 * Unpack the layers that the open view needs, then draw it.
 * @param {State} state
 * @param {Set<keyof State> | null} changed null: everything
 */
function draw(state, changed) {
  turn++;
  tell("");
  // the panel has kinds and heads to choose from, and options: folded where all are in sight, or there is no room
  const open = BESIDE.matches && (!shows(state, "overview") || itemOf(state).kinds.length > 1);
  if (open !== stood) byId("panel").toggleAttribute("open", open);
  stood = open;
  const left = document.activeElement?.closest("[role=tabpanel]");
  const theme = "print" in document.documentElement.dataset ? "light" : state.theme;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  drawControls(state);
  hideTip();
  if (!shows(state, "overview")) hidePreview();
  document.documentElement.dataset.view = state.view;
  for (const [name, value] of Object.entries({ role: "tabpanel", "aria-labelledby": "tab-stage" })) {
    if (state.view === "stage") byId("view-stage").setAttribute(name, value);
    else byId("view-stage").removeAttribute(name);
  }
  for (const view of VIEWS) if (view !== "stage") byId(`view-${view}`).hidden = !drawn(state).includes(view);
  drawLead(state);
  byId("zoom").hidden = !shows(state, "map");
  byId("where").textContent = state.view === "overview" ? "" : state.view === "card" ? titleOf(state, state.head) : counted(state);
  // the overview loads its layers as they come into sight
  const shown = state.view === "overview" ? [] : sitesShown(state.view === "stage" ? { ...state, view: "text" } : state);
  const missing = [...new Set([...shown, ...(asksPair(state) || asksSpans(state) ? kindOf(state).sites : []), ...sitesRanked(state)])].filter((site) => !isLoaded(site));
  const scene = state.view === "overview" ? null : sceneOf(state);
  const waits = missing.length > 0 || (scene !== null && !isReady(scene));
  const now = turn;
  const view = views[state.view];
  drawWho(state);
  drawSpans(state);
  drawWhy(state);
  if (!secondOf(state)) drawBeside(state, null);
  const finish = () => {
    if (missing.length) {
      drawWho(state);
      drawSpans(state);
    }
    view.draw(state, changed);
    // who worked in a view that has gone goes on in the one that came
    if (shows(state, "overview")) loadAhead();
    if (left && state.view !== "stage" && left.id !== `view-${state.view}`) view.focus?.()?.focus();
  };
  if (!waits) finish();
  else {
    track(Promise.all([loadAll(missing), scene && prepareScene(scene)]).then(() => {
      if (turn === now) finish();
    }));
  }
}

/** In a notebook's frame, take the height that the page needs. */
function fitFrame() {
  try {
    const frame = /** @type {HTMLElement | null} */ (window.frameElement);
    if (frame?.dataset.attnviz) {
      frame.style.height = `${Math.min(Math.max(document.documentElement.scrollHeight, 480), 1100)}px`;
    }
  } catch {
    // a frame of another origin keeps the height it was given
  }
}

function start() {
  if (typeof DecompressionStream === "undefined") {
    failed("this browser cannot unpack its data (no DecompressionStream); use Chrome 103, Firefox 113, Safari 16.4 or newer");
    return;
  }
  BESIDE.addEventListener("change", () => draw(get(), null));
  byId("panel").firstElementChild?.addEventListener("click", () => requestAnimationFrame(() => draw(get(), null)));
  const current = () => views[get().view];
  startControls();
  startOverview();
  startPlane();
  startTints();
  startMap();
  startLines();
  startText();
  startScene();
  startStage();
  startCard();
  startWho(current);
  startSpans();
  startBeside();
  startMost();
  startWhy(current);
  startKeys(current);
  startSave(current);
  startPrint(current, () => draw(get(), null));
  byId("zoom-in").addEventListener("click", () => map.zoom?.(1.5));
  byId("zoom-out").addEventListener("click", () => map.zoom?.(1 / 1.5));
  byId("zoom-all").addEventListener("click", () => map.zoom?.(0));
  fromHash();
  subscribe(draw);
  startHost();
  addEventListener("hashchange", fromHash);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(get(), null));
  let resizing = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => draw(get(), null));
  });
  setTimeout(fitFrame, 300);
}

startPage();
document.documentElement.toggleAttribute("data-against", page.against);
start();
