// A trace sentence by sentence. Of the sentence that is pointed at or held: where it is read later, and what
// moves without it; side by side, since they may differ.
import { arcs } from "./arcs.js";
import { bar, signedBar } from "./bars.js";
import { byId, fill, make } from "./dom.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { fitted } from "./painter.js";
import { figure, fixed, shown, signedText } from "./numbers.js";
import { tones } from "./palette.js";

/** @type {import("./types.js").Data} */
const data = JSON.parse(byId("data").textContent || "");
/** Sentences that a card has room for. */
const MOST = 10;
let trace = data.traces[0];
let head = Math.min(1, trace.attention.length - 1);
/** @type {number | null} */
let held = null;
/** @type {number | null} */
let pointed = null;
/** @type {HTMLElement[]} */
let rows = [];

/** The sentence that is looked at. */
function chosen() {
  return pointed ?? held;
}

/** A weight as a bar from the left. @param {number | null} value @param {number} most */
function plain(value, most) {
  return make("span", { class: "cell" }, bar((value ?? 0) / most), make("span", {}, value === null ? "" : shown(value)));
}

/** An effect as a bar from the middle. @param {number | null} value @param {number} most */
function signed(value, most) {
  return make("span", { class: "cell" }, signedBar(value ?? 0, most), make("span", {}, value === null ? "" : signedText(value)));
}

/** What the answer loses where a sentence is written anew. @param {[number | null, string, boolean][]} all @param {number} n */
function anew(all, n) {
  const [value, ends, sure] = all[n];
  const cell = signed(value, largest(all.map(([one]) => one)));
  if (sure) cell.lastElementChild?.append("*");
  if (ends) cell.title = `95 % together: ${ends}`;
  return cell;
}

/** The values of the two bars of every sentence. @returns {[(number | null)[], (number | null)[]]} */
function values() {
  const at = chosen();
  if (at === null) return [trace.read, trace.needed || trace.read.map(() => null)];
  const [, weights] = trace.attention[head];
  /** @param {import("./types.js").Matrix | null} matrix */
  const from = (matrix) => trace.sentences.map((_, n) => (!matrix || n === at ? null : n > at ? matrix[n][at] : null));
  return [from(weights), from(trace.effects)];
}

/** The largest size of some values. @param {(number | null)[]} some */
function largest(some) {
  return Math.max(...some.map((value) => Math.abs(value ?? 0)), 1e-12);
}

/** The bars of all rows, and the arcs. */
function show() {
  const at = chosen();
  const [read, needed] = values();
  const [far, wide] = [largest(read), largest(needed)];
  rows.forEach((row, n) => {
    row.classList.toggle("chosen", n === at);
    row.classList.toggle("before", at !== null && n < at);
    row.setAttribute("aria-pressed", String(n === held));
    row.querySelectorAll(".cell").forEach((cell) => cell.remove());
    row.append(plain(read[n], far), ...(trace.effects ? [signed(needed[n], wide)] : []), ...(trace.resampled ? [anew(trace.resampled, n)] : []));
  });
  fill(byId("chosen"), ...told(at));
  drawArcs();
}

/** What is said of the chosen sentence. @param {number | null} at */
function told(at) {
  if (at === null) return [`Bars: how much ${data.readers} read each sentence from ${data.apart} or more sentences later${trace.effects ? ", and how far these move without it" : ""}.`];
  const [name, weights] = trace.attention[head];
  const later = trace.sentences.map((_, n) => n).filter((n) => n > at);
  if (!later.length) return ["Nothing stands later."];
  /** @param {import("./types.js").Matrix} matrix */
  const most = (matrix) => later.reduce((best, n) => ((matrix[n][at] ?? -Infinity) > (matrix[best][at] ?? -Infinity) ? n : best));
  const reader = most(weights);
  const lines = [`Sentence ${trace.sentences[at][0]} is read most by ${trace.sentences[reader][0]} (${name}: ${shown(weights[reader][at] ?? 0)})`];
  if (trace.effects) {
    const mover = most(trace.effects);
    lines.push(`; without it ${trace.sentences[mover][0]} moves most (${signedText(trace.effects[mover][at] ?? 0)})`);
  }
  const needs = trace.feeds[at].map(([n, effect]) => `${trace.sentences[n][0]} (${signedText(effect)})`);
  if (needs.length) lines.push(`. It needs ${needs.join(" and ")}`);
  const [effect, ends] = trace.resampled?.[at] ?? [null, ""];
  if (effect !== null) lines.push(`. Kept as it is, and not written anew, it adds ${signedText(effect)} to the answer's log probability${ends ? ` (${ends})` : ""}`);
  return [`${lines.join("")}.`];
}

/** The sentences that the others need or read most, with bars. @param {import("./drawing.js").Painter} painter @param {number} [count] */
function drawMost(painter, count = MOST) {
  const [wide, bar, line, left] = [430, 150, 24, 34];
  const [text, soft, more, less] = tones("--text", "--soft", "--strong", "--mark");
  const [name, all] = trace.needed ? ["needed", trace.needed] : ["read", trace.read];
  const far = largest(all);
  const shownRows = [...all.keys()].sort((a, b) => Math.abs(all[b] ?? 0) - Math.abs(all[a] ?? 0)).slice(0, count).sort((a, b) => a - b);
  const zero = left + wide + bar * (all.some((value) => (value ?? 0) < 0) ? 0.5 : 0);
  const across = left + wide + bar - zero;
  painter.text(name, left + wide, line / 2, { size: 12, color: soft });
  shownRows.forEach((n, row) => {
    const y = (row + 1.5) * line;
    const value = all[n];
    painter.text(trace.sentences[n][0], left - 10, y, { size: 12, color: soft, align: "right" });
    painter.text(fitted(painter, trace.sentences[n][1], wide - 20, 14), left, y, { size: 14, color: text });
    if (value === null) return;
    const size = (across * Math.abs(value)) / far;
    painter.rect(value < 0 ? zero - size : zero, y - 6, Math.max(size, 0.5), 12, value < 0 ? less : more);
    painter.text(trace.needed ? signedText(value) : shown(value), left + wide + bar + 8, y, { size: 12, color: text });
  });
  return { width: left + wide + bar + 60, height: (shownRows.length + 1) * line };
}

/** Arcs beside the rows. */
function drawArcs() {
  if (!trace.effects || !rows.length) return;
  const box = byId("arcs");
  const top = box.getBoundingClientRect().top;
  const middles = rows.map((row) => {
    const own = row.getBoundingClientRect();
    return (own.top + own.bottom) / 2 - top;
  });
  box.replaceChildren(arcs(trace.feeds, middles, box.clientWidth || 56, chosen()));
}

/** The rows of a trace. */
function build() {
  rows = trace.sentences.map(([number, text, part], n) => {
    const row = make("button", { type: "button", class: `sentence ${part}`, "aria-pressed": "false" }, make("span", { class: "number", title: part === "text" ? "" : part }, number), make("bdi", {}, text));
    row.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") look(n); });
    row.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") look(null); });
    row.addEventListener("focus", () => { if (row.matches(":focus-visible")) look(n); });
    row.addEventListener("blur", () => look(null));
    row.addEventListener("click", () => { held = held === n ? null : n; pointed = null; show(); });
    return row;
  });
  fill(byId("sentences"), ...rows.map((row) => make("li", {}, row)));
  const titles = ["read", ...(trace.effects ? ["needed"] : []), ...(trace.resampled ? ["resampled"] : [])];
  for (const box of [byId("trace"), byId("columns")]) box.style.setProperty("--bars", String(titles.length));
  fill(byId("columns"), make("span", {}), make("span", {}, "sentence"), ...titles.map((title) => make("span", {}, title)));
}

/** @param {number | null} at */
function look(at) {
  pointed = at;
  show();
}

/** The heads, and which of them is shown. */
function heads() {
  const all = data.heads.flatMap((one) => [one.kurtosis, one.control ?? 0]);
  const [low, high] = [Math.min(0, ...all), Math.max(0, ...all, 1e-9)];
  /** @param {number} value */
  const at = (value) => (100 * (value - low)) / (high - low);
  const kept = new Map(trace.attention.map(([name], n) => [name, n]));
  const choice = (/** @type {string} */ name, /** @type {number} */ n) => {
    const button = make("button", { type: "button", "aria-pressed": String(n === head) }, name);
    button.addEventListener("click", () => { head = n; heads(); show(); });
    return button;
  };
  const lines = data.heads.slice(0, 12).map((one) => {
    const bar = make("i", {});
    bar.style.left = `${Math.min(at(0), at(one.kurtosis))}%`;
    bar.style.width = `${Math.abs(at(one.kurtosis) - at(0))}%`;
    const along = make("span", { class: "along" }, bar);
    along.style.setProperty("--zero", `${at(0)}%`);
    if (one.control !== null) {
      const ring = make("b", {});
      ring.style.left = `${at(one.control)}%`;
      along.append(ring);
    }
    const n = kept.get(one.name);
    const title = `kurtosis ${figure(one.kurtosis)}${one.control === null ? "" : `, ${figure(one.control)} in random order`}${one.ends ? `, difference ${one.ends}` : ""}`;
    return make("div", { class: "kurtosis", title }, n === undefined ? make("bdi", {}, one.name) : choice(one.name, n), along, make("span", {}, figure(one.kurtosis) + (one.sure ? "*" : "")));
  });
  fill(byId("heads"), make("p", { class: "buttons" }, ...[0, 1].filter((n) => n < trace.attention.length).map((n) => choice(trace.attention[n][0], n))), ...lines);
}

/** The choice of a trace, where there are several. */
function which() {
  if (data.traces.length < 2) return [];
  const list = make("select", { id: "number" }, ...data.traces.map((_, n) => make("option", { value: n }, `trace ${n + 1} of ${data.traces.length}`)));
  list.addEventListener("change", () => {
    trace = data.traces[Number(list.value)];
    held = pointed = null;
    build();
    show();
  });
  return [make("label", { for: "number" }, "trace"), list];
}

/** Every sentence and pair of the trace. */
function* lines() {
  yield ["sentence", "earlier", "text", "read", "needed", "resampled", "weight", "effect"];
  for (const [n, [number, text]] of trace.sentences.entries()) {
    yield [number, "", text, trace.read[n] ?? "", trace.needed?.[n] ?? "", trace.resampled?.[n][0] ?? "", "", ""].map(String);
    for (let earlier = 0; earlier < n; earlier++) {
      const pair = [trace.attention[head][1][n][earlier], trace.effects?.[n][earlier] ?? ""];
      yield [number, trace.sentences[earlier][0], "", "", "", "", ...pair].map(String);
    }
  }
}

fill(byId("about"), data.title);
fill(byId("which"), ...which());
byId("which").hidden = data.traces.length < 2;
const reliable = data.reliability === null ? "" : ` Split-half reliability ${fixed(data.reliability, 2)}.`;
fill(byId("about-heads"), `Kurtosis of vertical scores over sentences${data.draws ? "; the ring: sentences in random order" : ""}.${reliable}`);
fill(byId("measured"), data.measured);
fill(byId("notes"), data.notes.join(" "));
fill(byId("closing"), data.closing);
startSaving("attnviz-thoughts", (painter) => drawMost(painter, trace.sentences.length), lines, { card: drawMost });
startHelpByKey([["Tab", "from sentence to sentence"], ["Enter", "hold a sentence"]]);
new ResizeObserver(drawArcs).observe(byId("trace"));
startFrame(show);
build();
heads();
show();
document.documentElement.dataset.busy = "0";
