// What was found, sentence by sentence; the text stands below, tinted by votes or by a head's weights.
import { byId, fill, make, say, shown } from "./dom.js";
import { bars, differences, valueText } from "./bars.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { legend } from "./legend.js";
import { ramp, rootColor, scheme } from "./palette.js";
import { drawAll } from "./picture.js";
import { shades } from "./shades.js";
import { changeColor } from "./signed.js";

/** @type {import("./types.js").Data} */
const data = JSON.parse(byId("data").textContent || "");

/** @param {import("./types.js").Sentence} sentence */
function finding({ said, how }) {
  return make("div", { class: "finding" }, make("p", {}, said), make("p", { class: "how" }, how));
}

/** Black or white, whichever reads better. @param {number[]} rgb */
function ink([r, g, b]) {
  const [x, y, z] = [r, g, b].map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return (0.2126 * x + 0.7152 * y + 0.0722 * z + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff";
}

/** @param {number} share from -1 to 1 */
function tint(share) {
  return changeColor(data.signed[scheme()], Math.sign(share) * Math.sqrt(Math.abs(share)));
}

/** @param {string} hex */
function parts(hex) {
  return [1, 3, 5].map((n) => parseInt(hex.slice(n, n + 2), 16));
}

/**
 * The text, a button a token; what stands behind it is said below.
 * @param {number[]} values
 * @param {(n: number) => number[]} color as r, g, b
 * @param {(n: number) => string} words
 * @param {number} held the token that is said at first
 * @param {string} label
 */
function text(values, color, words, held, label) {
  const told = make("p", { class: "told" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  /** @param {number} n @param {boolean} aloud */
  const choose = (n, aloud) => {
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === n)));
    told.textContent = words(n);
    if (aloud) say(words(n));
  };
  values.forEach((_, n) => {
    const button = make("button", { type: "button", "aria-pressed": "false", title: words(n), class: n === data.position ? "asking" : "" }, make("bdi", {}, data.tokens[n]));
    const rgb = color(n);
    button.style.background = `rgb(${rgb.join(" ")})`;
    button.style.color = ink(rgb);
    button.addEventListener("click", () => choose(n, true));
    button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") told.textContent = words(n); });
    buttons.push(button);
  });
  choose(held, false);
  return [make("ul", { class: "tokens", "aria-label": label }, ...buttons.map((button) => make("li", {}, button))), told];
}

/** @param {number} n */
function named(n) {
  return `${data.tokens[n]} (${n})`;
}

/** A whole map. @param {number[][]} map @param {string} name */
function whole(map, name) {
  const canvas = make("canvas", { role: "img", "aria-label": `attention map of head ${name}: queries downwards, keys to the right`, width: map[0].length, height: map.length });
  const pixels = shades({ values: map.flat(), rows: map.length, columns: map[0].length, colors: ramp(data.palette), factor: () => 1 / 1000, root: true, masked: (cell) => map[Math.floor(cell / map[0].length)][cell % map[0].length] < 0 });
  canvas.getContext("2d")?.putImageData(new ImageData(pixels, map[0].length, map.length), 0, 0);
  return canvas;
}

/** @param {import("./types.js").Told} one */
function card(one) {
  const title = one.adds ? `Head ${one.name}, ${one.adds} logits` : `Head ${one.name}`;
  const card = make("article", { class: "card" }, make("h3", {}, title), finding(one.said),
    ...text(one.weights, (n) => parts(rootColor(data.palette, one.weights[n])), (n) => `${named(n)}: weight ${shown(one.weights[n])}`, one.key, `weights of head ${one.name} on every token`));
  if (one.found) card.append(make("h4", {}, "Where its key comes from"), finding(one.found));
  if (one.sources.length) card.append(bars(one.sources, data.signed[scheme()], `what sources add to the score of head ${one.name}`));
  if (one.map.length) card.append(make("h4", {}, "Its whole map (queries downwards)"), whole(one.map, one.name));
  return card;
}

function draw() {
  const most = Math.max(...data.votes.map(Math.abs), 1e-9);
  fill(byId("prediction"), finding(data.prediction),
    bars(data.predictions.map(([word, share, , rank]) => [`${rank}. ${word}`, share]), data.signed[scheme()], "probabilities"));
  fill(byId("split"), finding(data.split), ...(data.votes.length ? text(data.votes, (n) => tint(data.votes[n] / most),
    (n) => `${named(n)}: all heads add ${valueText(data.votes[n])} logits through it`, data.votes.indexOf(data.votes.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a))), "what all heads add through every token") : []));
  fill(byId("legend"), ...legend(data.palette, "0", "weight 1, by the square root", data.heads.some((one) => one.map.some((row) => row.some((weight) => weight < 0)))));
  fill(byId("heads"), make("div", { class: "cards" }, ...data.heads.map(card)));
  const last = data.without[data.without.length - 1];
  fill(byId("without"), ...data.without.map(({ said }) => make("p", {}, said)), differences(data, data.signed[scheme()]),
    make("p", { class: "small" }, last ? last.how : ""));
}

function* numbers() {
  yield ["heads", "method", "difference", "without"];
  for (const one of data.without) for (const [n, value] of one.values.entries()) yield [one.name, data.methods[n], String(data.difference), String(value)];
}

startFrame(draw);
startSaving("attnviz-explain", (painter) => drawAll(painter, data), () => getComputedStyle(document.documentElement).getPropertyValue("--paper").trim(), numbers);
fill(byId("title"), data.title);
fill(byId("compared"), `${data.compared}: ${valueText(data.difference)} logits. ${data.notes.join(" ")}`);
fill(byId("closing"), data.closing);
fill(byId("proves"), ...data.limits.map((line) => make("li", {}, line)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
