// What is known of one cell: its words, what every head of the layer added, and its position by layer.
import { bar, barLine, signedBar } from "./bars.js";
import { behind, cellAt, data, paint, where } from "./data.js";
import { byId, fill, make, painted } from "./dom.js";
import { fixed, percent, signedText, thousands } from "./numbers.js";

/** @typedef {import("./types.js").Place} Place */

/** @param {Place} place */
function words(place) {
  return cellAt(place).top.map(([number, share]) => {
    const wanted = data.names[number] === data.followed[place.column];
    return barLine(data.names[number], bar(share), percent(share), wanted ? "wanted" : "");
  });
}

/** @param {Place} place */
function added(place) {
  const found = cellAt(place).added;
  if (!found || !place.layer) return [];
  /** @type {[string, number][]} */
  const parts = found.heads.map((value, head) => [`head ${data.layers[place.layer]}.${head}`, value]);
  parts.push(["MLP", found.mlp]);
  if (found.mixer) parts.push(["mixer", found.mixer]);
  if (found.bias) parts.push(["bias", found.bias]);
  const most = Math.max(...parts.map(([, value]) => Math.abs(value)));
  const sum = `the state before has ${signedText(found.before)}, the LM head alone ${signedText(found.constant)}: in all ${signedText(found.logit)}`;
  return [make("p", { class: "of" }, `What layer ${data.layers[place.layer]} added to the logit of ${data.names[found.word]}`),
    ...parts.map(([name, value]) => barLine(name, signedBar(value, most), signedText(value))), make("p", { class: "small" }, sum)];
}

/** @param {Place} place */
function along(place) {
  const head = make("tr", {}, ...["layer", "rank", "probability", "entropy", "KL to last"].map((name) => make("th", { scope: "col" }, name)));
  const rows = data.layers.map((name, layer) => {
    const cell = cellAt({ layer, column: place.column });
    const share = painted(make("td", {}, percent(cell.share)), paint(cell.share));
    return make("tr", { "aria-current": String(layer === place.layer) }, make("td", {}, name), make("td", {}, thousands(cell.rank)), share,
      make("td", {}, fixed(cell.entropy, 2)), make("td", {}, fixed(cell.kl, 2)));
  });
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

/** Show a cell; what its layer added only where it is held. @param {Place} place @param {boolean} held */
export function show(place, held) {
  const cell = cellAt(place);
  fill(byId("name"), `${behind(place.layer)}, ${where(place.column)}`);
  fill(byId("numbers"), `entropy ${fixed(cell.entropy, 2)}, KL to the last layer ${fixed(cell.kl, 2)} nats`);
  fill(byId("words"), ...words(place));
  fill(byId("added"), ...(held ? added(place) : []));
  fill(byId("followed"), `${data.followed[place.column]} along the layers`);
  fill(byId("along"), along(place));
}
