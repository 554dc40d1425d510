import { byId, clamp, fill } from "./dom.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { lettersOf, paintFrame } from "./still.js";
import { draw } from "./svg.js";

/** @typedef {import("./types.js").Box} Box */
/** @typedef {import("./types.js").Part} Part */

/** @type {import("./types.js").Animation} */
const animation = JSON.parse(byId("animation").textContent || "");
const LAST = animation.frames.length - 1;
/** Seconds that a frame stands beside its own. */
const REST = 0.7;
const speed = /** @type {HTMLSelectElement} */ (byId("speed"));
const seek = /** @type {HTMLInputElement} */ (byId("seek"));
/** @type {Map<string, Part>} */
const parts = new Map();
let at = 0;
/** @type {number | null} */
let timer = null;

/** A new part of the stage, not seen yet. @param {string} name @returns {Part} */
function added(name) {
  const rect = draw("rect", { rx: 2 });
  const text = draw("text", { "dominant-baseline": "central" });
  const group = draw("g", {}, rect, text);
  group.style.opacity = "0";
  byId("stage").append(group);
  const part = { group, rect, text, shown: false };
  parts.set(name, part);
  return part;
}

/** @param {Part} part @param {Box} box */
function place(part, box) {
  const [x, y, width, height, fill, words, colour, bold, ring, align] = box;
  const { group, rect, text } = part;
  if (!part.shown) group.style.transition = "opacity 0.45s";
  group.style.transform = `translate(${x}px, ${y}px)`;
  if (!part.shown) {
    group.getBoundingClientRect();
    group.style.transition = "";
  }
  group.style.opacity = "1";
  part.shown = true;
  rect.style.width = `${width}px`;
  rect.style.height = `${height}px`;
  rect.style.fill = fill || "transparent";
  rect.classList.toggle("ring", ring);
  text.textContent = words;
  text.setAttribute("x", String(align === "middle" ? width / 2 : 0));
  text.setAttribute("y", String(height / 2));
  text.setAttribute("text-anchor", align);
  text.style.setProperty("--colour", colour);
  text.classList.toggle("bare", !fill);
  text.style.fontWeight = bold ? "700" : "400";
  text.style.fontSize = `${lettersOf(box)}px`;
}

/** @param {number} index of a frame; the first or last for one beyond */
function show(index) {
  at = clamp(index, 0, LAST);
  const frame = animation.frames[at];
  const named = new Map(frame.boxes.map(([name, box]) => [animation.names[name], animation.boxes[box]]));
  for (const [name, part] of parts) {
    if (!named.has(name) && part.shown) {
      part.group.style.opacity = "0";
      part.shown = false;
    }
  }
  for (const [name, box] of named) place(parts.get(name) || added(name), box);
  fill(byId("caption"), frame.caption);
  fill(byId("shapes"), frame.shapes);
  seek.value = String(at);
  fill(byId("where"), `${at + 1} / ${animation.frames.length}`);
}

function pause() {
  clearTimeout(timer ?? undefined);
  timer = null;
  fill(byId("play"), "Play");
}

function wait() {
  timer = setTimeout(() => {
    if (at === LAST) {
      pause();
      return;
    }
    show(at + 1);
    wait();
  }, (1000 * (animation.frames[at].seconds + REST)) / Number(speed.value));
}

function play() {
  if (at === LAST) show(0);
  fill(byId("play"), "Pause");
  wait();
}

function toggle() {
  if (timer === null) play();
  else pause();
}

/** @param {number} by so many frames */
function step(by) {
  pause();
  show(at + by);
}

/** @param {number} by so many of the speeds */
function faster(by) {
  speed.selectedIndex = clamp(speed.selectedIndex + by, 0, speed.options.length - 1);
}

/** Every step in words. */
function* stepLines() {
  yield ["step", "what happens", "shapes"];
  for (const [n, { caption, shapes }] of animation.frames.entries()) yield [String(n + 1), caption, shapes];
}

/** @type {Record<string, () => void>} */
const KEYS = {
  " ": toggle,
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  Home: () => step(-animation.frames.length),
  End: () => step(animation.frames.length),
  "+": () => faster(1),
  "-": () => faster(-1),
};

startFrame(() => show(at));
startHelpByKey([["Space", "play or pause"], ["← →", "step"], ["Home", "the first step"], ["End", "the last step"], ["+ −", "faster, slower"]]);
startSaving("attnviz-step", (painter) => paintFrame(painter, animation, at), () => stepLines(), { ground: "--stage" });
seek.max = String(LAST);
byId("play").addEventListener("click", toggle);
byId("back").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
seek.addEventListener("input", () => {
  const wanted = Number(seek.value);
  pause();
  show(wanted);
});
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const { tagName } = /** @type {HTMLElement} */ (event.target);
  const inForm = ["SELECT", "INPUT"].includes(tagName);
  if (!Object.hasOwn(KEYS, event.key) || (inForm && !"+-".includes(event.key)) || (tagName === "BUTTON" && event.key === " ")) return;
  event.preventDefault();
  KEYS[event.key]();
});

document.body.classList.add("still");
show(0);
requestAnimationFrame(() => document.body.classList.remove("still"));
if (!matchMedia("(prefers-reduced-motion: reduce)").matches) play();
