import { weightText } from "./digits.js";
import { byId } from "./dom.js";
import { fixed, plain } from "./numbers.js";
import { named, onCell } from "./headmap.js";
import { drawRow, leaveRow, playRow, startRow } from "./rowsteps.js";
import { get, page, set } from "./store.js";
import { drawReason } from "./whypanel.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Opened} Opened */

/** @type {Answer | null} */
let current = null;
/** The cell that is pointed at, in place of the one that was asked about. @type {{ t: number, s: number } | null} */
let pointed = null;
/** Whether the pass with all heads on is explained, where there are two. */
let first = false;
let causal = false;
/** Whether the panel is to take the focus when it is drawn next. */
let opening = false;

/** Open with the last cell that was clicked, else the row's largest weight. */
function open() {
  if (!current) return;
  const [layer, head] = get().head.split(".").map(Number);
  const { at, ids, before, after } = current;
  const count = ids.length;
  const row = (after || before)[layer].subarray((head * count + at) * count, (head * count + at + 1) * count);
  set({ why: get().key ?? row.indexOf(Math.max(...row)) });
  opening = true;
}

function close() {
  const inside = byId("why").contains(document.activeElement);
  pointed = null;
  set({ why: null });
  if (inside) byId("ask-why").focus();
}

/** Whether the answer lacks what is to be explained. @param {Answer} answer */
export function lacks(answer) {
  return get().why !== null && answer.opened !== get().head;
}

/** @param {boolean} ordered whether no query sees later keys */
export function startWhy(ordered) {
  causal = ordered;
  startRow();
  byId("ask-why").addEventListener("click", () => (get().why === null ? open() : close()));
  byId("play-row").addEventListener("click", () => {
    playRow();
    if (get().why === null) open();
    else draw();
  });
  byId("why-close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    const onMap = /** @type {HTMLElement} */ (event.target).matches?.("#maps canvas");
    if (event.key === "Escape" && get().why !== null) close();
    else if (event.key === "Enter" && onMap && get().why === null) open();
    else return;
    event.preventDefault();
  });
  for (const [id, whole] of /** @type {const} */ ([["why-before", true], ["why-after", false]])) {
    byId(id).addEventListener("click", () => { first = whole; draw(); });
  }
  onCell((cell, name) => {
    pointed = cell;
    if (cell) first = name === "before";
    if (get().why !== null) requestAnimationFrame(draw);
  });
}

/** What every source adds, as the panel asks for it. @param {import("./types.js").Split} split @param {Opened} terms */
function origins({ names, parts }, { S, width }) {
  return { names, part: (/** @type {number} */ n, /** @type {number} */ t) => parts.subarray((n * S + t) * width, (n * S + t + 1) * width) };
}

/** @param {Answer} answer */
export function drawWhy(answer) {
  current = answer;
  draw();
}

function draw() {
  const { why, head, off } = get();
  byId("why").hidden = why === null;
  byId("ask-why").setAttribute("aria-expanded", String(why !== null));
  if (why === null) leaveRow();
  if (why === null || !current || current.opened !== head) return;
  const { ids, at, termsBefore, termsAfter } = current;
  const whole = first || !termsAfter;
  byId("why-pass").hidden = !termsAfter;
  byId("why-before").setAttribute("aria-pressed", String(whole));
  byId("why-after").setAttribute("aria-pressed", String(!whole));
  const terms = /** @type {Opened | null} */ (whole ? termsBefore : termsAfter);
  if (!terms) return;
  const count = ids.length;
  const [r, c] = pointed ? [pointed.t, pointed.s] : [at, Math.min(why, count - 1)];
  const [layer, number] = head.split(".").map(Number);
  const maps = whole ? current.before : /** @type {Float32Array[]} */ (current.after);
  const answer = current;
  /** @type {import("./reason.js").Terms} */
  const known = { ...terms, softcap: null, sink: null, bias: null, allowed: (row, column) => !causal || column <= row, written: true, turned: false, slack: null, off: page.errors.score / terms.scale,
    origins: terms.split && { query: origins(terms.split.query, terms), key: origins(terms.split.key, terms) } };
  const names = { r, c, query: named(answer, r), key: (/** @type {number} */ s) => named(answer, s), error: page.errors.weight,
    weightText: (/** @type {number} */ weight) => (page.errors.weight ? weightText(weight) : weight && weight < 0.0005 ? plain(weight) : fixed(weight, 4)) };
  // what is written is known of the pass that goes on, at the token that is shown
  const written = r === answer.at && terms === (answer.after ? termsAfter : termsBefore) ? answer.passage[layer].written[number] : null;
  const plays = drawRow({ ...names, terms: known, values: terms.values, causal, written, choose: (s) => set({ at: r, key: s, why: s }) });
  drawReason(byId("why-body"), {
    ...names, terms: known, head, rowElsewhere: true,
    jump: (id) => set({ head: id }),
    shown: `${weightText(maps[layer][(number * count + r) * count + c])} in the map`,
    said: [
      "Computed from the queries and keys of this very pass.",
      ...(!whole && off.has(head) ? ["This head is off: it writes nothing."] : []),
    ],
  });
  if (plays) opening = false;
  if (opening) {
    opening = false;
    byId("why-title").focus({ preventScroll: true });
    byId("why").scrollIntoView({ block: "nearest" });
  }
}
