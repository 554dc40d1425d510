// Why a model says a word: votes by head and token, the heads that count most, and what is without them.
import { bar, barLine, signedBar, signedText } from "./bars.js";
import { byId, fill, make, table } from "./dom.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { mapCanvas } from "./mapfigure.js";
import { ramp, scheme } from "./palette.js";
import { shades } from "./shades.js";
import { changeColor } from "./signed.js";

/** @type {import("./types.js").Data} */
const data = JSON.parse(byId("data").textContent || "");
const SIDE = 180;

/** Tint by a share of the largest, from -1 to 1, with an ink that reads on it. @param {HTMLElement} box @param {number} share */
function tint(box, share) {
  const color = changeColor(data.signed[scheme()], Math.sign(share) * Math.sqrt(Math.abs(share)));
  const [r, g, b] = color.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  box.style.background = `rgb(${color.join(" ")})`;
  box.style.color = (0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05) ** 2 > 0.0525 ? "#000000" : "#ffffff";
  return box;
}

/** The text, tinted token by token. @param {number[]} values @param {number} most */
function tinted(values, most) {
  return data.texts.map((text, n) => {
    const box = make("span", { title: `${data.tokens[n]} (${n}): ${signedText(values[n] || 0)}`, class: n === data.position ? "here" : "" }, text);
    return values.length && values[n] ? tint(box, most ? values[n] / most : 0) : box;
  });
}

/** @param {number[]} values */
function largest(values) {
  return values.reduce((found, value) => Math.max(found, Math.abs(value)), 0);
}

function grid() {
  const names = new Set(data.heads.map((head) => head.name));
  const most = largest(data.votes.flatMap((row) => row.values));
  const widest = Math.max(...data.votes.map((row) => row.values.length));
  const head = make("tr", {}, make("th", { scope: "col" }, "layer"), ...Array.from({ length: widest }, (_, n) => make("th", { scope: "col" }, String(n))));
  const rows = data.votes.map(({ layer, values }) => make("tr", {}, make("th", { scope: "row" }, layer), ...values.map((value, n) =>
    tint(make("td", { class: names.has(`${layer}.${n}`) ? "chosen" : "", title: `${layer}.${n}` }, signedText(value)), most ? value / most : 0))));
  return make("table", { class: "grid" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

/** A head's map: queries downwards, keys across. @param {import("./types.js").Head} head */
function weights(head) {
  const rows = data.tokens.length;
  const pixels = shades({
    values: head.map.flat(), rows, columns: rows, colors: ramp(data.palette), factor: () => 1, root: true,
    masked: data.causal ? (cell) => cell % rows > Math.trunc(cell / rows) : null,
  });
  return mapCanvas({ rows, columns: rows, pixels, queries: data.tokens, keys: data.tokens, side: SIDE }, `attention weights of head ${head.name}`);
}

/** @param {import("./types.js").Head} head */
function card(head) {
  const vote = head.vote === null ? "" : `: ${head.vote} logits for ${data.answer}`;
  const box = make("article", { class: "head" }, make("h2", {}, `Head ${head.name}${vote}`));
  box.append(make("h3", {}, `it looks most at ${head.looks}`), make("p", { class: "row" }, ...tinted(head.weights, 1)));
  if (head.raises.length) box.append(make("h3", {}, "it raises most"), make("p", {}, head.raises.join(" ")));
  const most = largest(head.keys.map(([, share]) => share));
  box.append(make("h3", {}, "its key comes from"));
  if (head.reason) box.append(make("p", { class: "small" }, head.reason));
  box.append(...head.keys.map(([name, share]) => barLine(name, signedBar(share, most), head.shares ? `${Math.round(100 * share)} %` : signedText(share))));
  if (head.map.length) box.append(make("h3", {}, "all its weights, queries downwards"), make("div", { class: "map", tabindex: 0, role: "group", "aria-label": `map of head ${head.name}` }, weights(head)));
  return box;
}

function draw() {
  fill(byId("title"), data.title);
  fill(byId("said"), data.said);
  fill(byId("text"), ...tinted(data.sums, largest(data.sums)));
  fill(byId("summary"), ...data.summary.map((sentence) => make("p", {}, sentence)));
  fill(byId("predictions"), ...data.predictions.map(([word, share, text]) => barLine(word, bar(share), text, word === data.answer ? "wanted" : "")));
  byId("by-head").hidden = byId("by-token").hidden = !data.votes.length;
  if (data.votes.length) {
    const most = largest(data.through.map(([, value]) => value));
    fill(byId("grid"), grid());
    fill(byId("tokens"), ...data.through.map(([name, value]) => barLine(name, signedBar(value, most), signedText(value))));
  }
  fill(byId("heads"), ...data.heads.map(card));
  fill(byId("effects"), table(["without", ...data.methods.map((name) => `change of its lead, by ${name}`)], data.effects));
  fill(byId("measured"), data.measured);
  fill(byId("limits"), ...data.limits.map((limit) => make("li", {}, limit)));
  fill(byId("closing"), data.closing);
}

startHelpByKey([]);
startFrame(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
document.documentElement.dataset.busy = "0";
