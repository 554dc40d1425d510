// Why a model says a word: what adds up to its lead, votes, the heads that count most, and what is without them.
import { bar, barLine, signedBar } from "./bars.js";
import { CELLS, data, largest, mapOf, shadeOf, tintOf } from "./data.js";
import { byId, fill, make, painted, table } from "./dom.js";
import { shown, signedText, wholePercent } from "./numbers.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { mapCanvas } from "./mapfigure.js";
import { drawVotes, drawWhole } from "./picture.js";

/** A text, tinted token by token. @param {{ tokens: string[], texts: string[] }} words @param {number[]} values @param {number | null} marked @param {(value: number) => { ground: string, ink: string }} tint @param {(value: number) => string} said */
function tinted({ tokens, texts }, values, marked, tint, said) {
  return texts.map((text, n) => {
    const value = values[n] || 0;
    const box = make("span", { title: `${tokens[n]} (${n}): ${said(value)}`, class: n === marked ? "here" : "" }, text);
    return value ? painted(box, tint(value)) : box;
  });
}

function grid() {
  const names = new Set(data.heads.map((head) => head.name));
  const most = largest(data.votes.flatMap((row) => row.values));
  const widest = Math.max(...data.votes.map((row) => row.values.length));
  const head = make("tr", {}, make("th", { scope: "col" }, "layer"), ...Array.from({ length: widest }, (_, n) => make("th", { scope: "col" }, String(n))));
  const rows = data.votes.map(({ layer, values }) => make("tr", {}, make("th", { scope: "row" }, layer), ...values.map((value, n) =>
    painted(make("td", { class: names.has(`${layer}.${n}`) ? "chosen" : "", title: `${layer}.${n}` }, signedText(value)), tintOf(most ? value / most : 0)))));
  return make("table", { class: "grid" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

/** @param {import("./types.js").Head} head */
function card(head) {
  const vote = head.vote === null ? "" : `: vote ${head.vote}`;
  const box = make("article", { class: "head" }, make("h2", {}, `Head ${head.name}${vote}`));
  box.append(make("h3", {}, `it looks most at ${head.looks}`), make("p", { class: "row" }, ...tinted(head, head.weights, head.here, shadeOf, shown)));
  if (head.raises.length) box.append(make("h3", {}, "it raises most"), make("p", {}, head.raises.join(" ")));
  const most = largest(head.keys.map(([, share]) => share));
  box.append(make("h3", {}, "its key comes from"));
  if (head.reason) box.append(make("p", { class: "small" }, head.reason));
  box.append(...head.keys.map(([name, share]) => barLine(name, signedBar(share, most), head.shares ? wholePercent(share) : signedText(share))));
  if (head.map.length) box.append(make("h3", {}, `all its weights, queries downwards${head.map.flat().includes(CELLS.unselected) ? "; pink: not selected by the layer's indexer" : ""}`), make("div", { class: "map", tabindex: 0, role: "group", "aria-label": `map of head ${head.name}` }, mapCanvas(mapOf(head), `attention weights of head ${head.name}`)));
  return box;
}

function draw() {
  fill(byId("about"), `${data.title} ${data.said[0].toUpperCase()}${data.said.slice(1)}.`);
  const widest = largest(data.sums) || 1;
  fill(byId("text"), ...tinted(data, data.sums, data.position, (value) => tintOf(value / widest), signedText));
  fill(byId("summary"), ...data.summary.map((sentence) => make("p", {}, sentence)));
  fill(byId("predictions"), ...data.predictions.map(([word, share, text]) => barLine(word, bar(share), text, word === data.answer ? "wanted" : "")));
  byId("by-head").hidden = byId("by-token").hidden = byId("by-part").hidden = !data.votes.length;
  fill(byId("heading"), data.heading);
  if (data.votes.length) {
    const largestPart = largest(data.account.map(([, value]) => value));
    fill(byId("account"), ...data.account.map(([name, value]) => barLine(name, signedBar(value, largestPart), signedText(value))));
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
startSaving("attnviz-explain", drawWhole, () => data.lines, { headline: () => data.summary[0] || data.title, card: drawVotes });
draw();
document.documentElement.dataset.busy = "0";
