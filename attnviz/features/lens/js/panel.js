// What is known of one cell: its words, what every head of the layer added, and its position by layer.
import { behind, cellAt, data, paint, percent, signed, where } from "./data.js";
import { byId, fill, make } from "./dom.js";

/** @typedef {import("./types.js").Place} Place */

/** @param {string} name @param {Node} drawn @param {string} value @param {string} kind */
function line(name, drawn, value, kind) {
  return make("div", { class: `bar ${kind}` }, make("bdi", { title: name }, name), drawn, make("span", {}, value));
}

/** @param {number} value @param {number} most */
function signedBar(value, most) {
  const bar = make("i", { class: value < 0 ? "less" : "more" });
  const size = most ? (50 * Math.abs(value)) / most : 0;
  bar.style.width = `${size}%`;
  bar.style.left = `${value < 0 ? 50 - size : 50}%`;
  bar.style.height = "11px";
  return make("div", { class: "signed" }, bar);
}

/** @param {Place} place */
function words(place) {
  return cellAt(place).top.map(([number, share]) => {
    const bar = make("i", {});
    bar.style.width = `${100 * share}%`;
    const wanted = data.names[number] === data.followed[place.column];
    return line(data.names[number], make("div", {}, bar), percent(share), wanted ? "wanted" : "");
  });
}

/** @param {Place} place */
function added(place) {
  const found = cellAt(place).added;
  if (!found || !place.layer) return [];
  /** @type {[string, number][]} */
  const parts = found.heads.map((value, head) => [`head ${data.layers[place.layer]}.${head}`, value]);
  parts.push(["MLP", found.mlp]);
  if (found.bias) parts.push(["bias", found.bias]);
  const most = Math.max(...parts.map(([, value]) => Math.abs(value)));
  const sum = `the state before has ${signed(found.before)}, the LM head alone ${signed(found.constant)}: in all ${signed(found.logit)}`;
  return [make("p", { class: "of" }, `What layer ${data.layers[place.layer]} added to the logit of ${data.names[found.word]}`),
    ...parts.map(([name, value]) => line(name, signedBar(value, most), signed(value), "cell")), make("p", { class: "small" }, sum)];
}

/** @param {Place} place */
function along(place) {
  const head = make("tr", {}, ...["layer", "rank", "probability", "entropy", "KL to last"].map((name) => make("th", { scope: "col" }, name)));
  const rows = data.layers.map((name, layer) => {
    const cell = cellAt({ layer, column: place.column });
    const share = make("td", {}, percent(cell.share));
    const { ground, ink } = paint(cell.share);
    share.style.background = ground;
    share.style.color = ink;
    return make("tr", { "aria-current": String(layer === place.layer) }, make("td", {}, name), make("td", {}, cell.rank.toLocaleString("en")), share,
      make("td", {}, cell.entropy.toFixed(2)), make("td", {}, cell.kl.toFixed(2)));
  });
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

/** Show a cell; what its layer added only where it is held. @param {Place} place @param {boolean} held */
export function show(place, held) {
  const cell = cellAt(place);
  fill(byId("name"), `${behind(place.layer)}, ${where(place.column)}`);
  fill(byId("numbers"), `entropy ${cell.entropy.toFixed(2)}, KL to the last layer ${cell.kl.toFixed(2)} nats`);
  fill(byId("words"), ...words(place));
  fill(byId("added"), ...(held ? added(place) : []));
  fill(byId("followed"), `${data.followed[place.column]} along the layers`);
  fill(byId("along"), along(place));
}
