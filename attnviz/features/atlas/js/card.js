import { byId, fill, make, table } from "./dom.js";
import { figure, interval, plural, times, wholePercent } from "./numbers.js";
import { data, metric, roleSign } from "./data.js";
import { legend } from "./legend.js";
import { mapCanvas } from "./mapfigure.js";
import { isCausal, pixelsOf } from "./smallmap.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").HeadMap} HeadMap */

const SIDE = 280;

/** @param {Head} head */
export function drawCard(head) {
  const print = make("button", { type: "button" }, "print this card");
  print.addEventListener("click", () => {
    document.body.classList.add("one-card");
    window.print();
    document.body.classList.remove("one-card");
  });
  const close = make("a", { href: "#" }, "close");
  fill(
    byId("card"),
    make("div", { class: "head-line" }, make("h2", {}, `Head ${head.name}`), make("span", {}, print, " ", close)),
    ...(data.links[head.name] ? [make("p", {}, make("a", { href: data.links[head.name] }, "row by row: rules, and rows from every tenth"))] : []),
    make("ul", {}, ...lines(head).map((line) => make("li", {}, ...line))),
    ...data.atlas.findings.flatMap(({ title, name }, n) => [make("h3", {}, `${title} (${name})`),
      head.told[n].length ? make("ul", {}, ...head.told[n].map((line) => make("li", {}, line))) : make("p", {}, "Nothing was found for this head.")]),
    make("div", { class: "map" }, ...(head.map ? [mapFigure(head, head.map)] : []), distances(head)),
    make("h3", {}, "Strings with more weight than their frequency gives them"),
    table(["string", "share", "under uniform attention", "times"], head.strings.map(({ text, weight, uniform }) => [text, wholePercent(weight), wholePercent(uniform), times(weight / uniform)])),
    make("h3", {}, "Examples"),
    make("ul", {}, ...head.examples.map(({ score, value, place, text, token, row }) => make("li", {}, `${score} ${figure(value)} at ${token} (${row}): ${text} `, make("span", { class: "soft" }, place)))),
    make("h3", {}, "All scores"),
    table(["score", "mean", "95 % interval", "chance", "rows", "texts"], Object.entries(head.scores).filter(([, { mean }]) => mean !== null).map(([name, { mean, low, high, chance, rows, texts }]) => [
      make("span", { title: data.scores[name] || "" }, name), figure(mean || 0), interval(low, high).trim(), chance === null ? "" : figure(chance), String(rows), String(texts),
    ])),
  );
}

/** What is known, a sentence each. @param {Head} head @returns {(Node | string)[][]} */
function lines(head) {
  /** @type {(Node | string)[][]} */
  const out = [];
  const { does, rests, effect, relations, coreference, copying, feeds, reads, nearest, usual, stays } = head;
  if (does) {
    const score = head.scores[does.score];
    const where = does.possible !== null && does.possible < 0.9 ? ` where possible (${wholePercent(does.possible)} of rows)` : "";
    out.push([roleSign(does), `does ${does.name} ${figure(does.mean)}${interval(score.low, score.high)}${where}, chance ${does.chance === null ? "unknown" : figure(does.chance)}, ${plural(does.rows, "row")}${drawn(stays?.does, stays?.of)}`]);
  }
  if (rests) out.push([roleSign(rests), `sink: ${rests.name} ${figure(rests.mean)}`]);
  if (!does && !rests) out.push(["no role with enough evidence"]);
  if (effect && metric) {
    const sure = metric.distance ? "a distance, which is never below zero" : effect.needed === null ? "not judged: that takes two methods and several texts" : effect.needed ? "needed by two methods" : "not shown to be needed";
    out.push([`ablated: ${metric.name} ${figure(effect.effect, true)} ${metric.unit}${interval(effect.low, effect.high, (value) => figure(value, true))}, rank ${effect.rank}; ${sure}`]);
  }
  for (const { relation, direction, accuracy, low, high, count, offset_accuracy } of relations) {
    out.push([`finds ${relation} ${wholePercent(accuracy)}${interval(low, high, wholePercent)} of ${plural(count, "held-out case")} (${direction === "to_head" ? "where the dependent looks" : "who looks at the dependent"}); best offset ${wholePercent(offset_accuracy)}`]);
  }
  if (coreference) {
    const { accuracy, low, high, count, baseline, baseline_accuracy } = coreference;
    out.push([`names: ${wholePercent(accuracy)}${interval(low, high, wholePercent)} of ${plural(count, "held-out case")}, ${baseline} ${wholePercent(baseline_accuracy)}`]);
  }
  if (copying) out.push([`copying score ${copying.first === null ? "" : `${figure(copying.first, true)} with embeddings as they leave the first layer`}${copying.plain === null ? "" : `${copying.first === null ? "" : ", "}${figure(copying.plain, true)} with plain ones`}`]);
  for (const { side, reader, ratio, excess, measured } of feeds) out.push(["feeds ", link(reader), `: its ${side} side, ${figure(ratio)} by the weights (${figure(excess, true)} against random)${onTexts(measured)}`]);
  for (const { side, writer, ratio, excess, measured } of reads) out.push(["reads ", link(writer), ` with its ${side} side, ${figure(ratio)} by the weights (${figure(excess, true)} against random)${onTexts(measured)}`]);
  if (nearest.length) out.push(["most alike: ", ...nearest.flatMap(({ name, distance }, n) => [n ? ", " : "", link(name), ` at ${figure(distance)}`]), ` (Jensen-Shannon distance${usual === null ? "" : `; a pair drawn at random has ${figure(usual)}`})${drawn(stays?.nearest, stays?.of)}`]);
  return out;
}

/** What was measured beside the weights. @param {import("./types.js").Measured | null} measured */
function onTexts(measured) {
  if (!measured) return "";
  const { share, low, high, score, rows, texts } = measured;
  return `; on texts ${wholePercent(share)}${interval(low, high, wholePercent)} of the contrast of its ${score ? `${score} keys` : "strongest key"} with the others, ${plural(rows, "row")} of ${plural(texts, "text")}`;
}

/** How often it stays when the texts are drawn anew. @param {number | null} [times] @param {number} [of] */
function drawn(times, of) {
  return of && times !== null && times !== undefined ? `; so in ${times} of ${of} draws of the texts` : "";
}

/** @param {string} name */
function link(name) {
  return make("a", { href: `#${name}` }, name);
}

/** The map of an example. @param {Head} head @param {HeadMap} map */
function mapFigure(head, map) {
  const [rows, columns] = [map.queries.length, map.keys.length];
  const [causal, pixels] = [isCausal(head, map), pixelsOf(head, map)];
  const canvas = mapCanvas({ rows, columns, pixels, queries: map.queries, keys: map.keys, side: SIDE, marked: map.row }, `attention of head ${head.name} on an example`);
  const row = map.weights[map.row];
  const best = row.indexOf(Math.max(...row));
  return make("figure", {}, canvas,
    make("div", { class: "legend" }, ...legend(data.palette, "0", "1, by the square root of the weight", causal)),
    make("figcaption", {}, `${map.queries[map.row]} looks at ${map.keys[best]} (${figure(row[best] / 1000)}); queries downwards, keys across`));
}

/** Weight by distance, as bars. @param {Head} head */
function distances(head) {
  const most = Math.max(...head.distances.map(({ weight }) => weight), 1e-9);
  const bars = head.distances.map(({ distance, weight, uniform }) => {
    const bar = make("span", { title: `${distance}: ${wholePercent(weight)}, uniform ${wholePercent(uniform)}` });
    bar.style.height = `${(100 * weight) / most}%`;
    return bar;
  });
  const peak = head.distances.reduce((a, b) => (b.weight > a.weight ? b : a), head.distances[0]);
  const said = peak ? `weight by distance; most at ${peak.distance} (${wholePercent(peak.weight)})` : "";
  return make("figure", {}, make("div", { class: "bars", role: "img", "aria-label": said }, ...bars),
    make("div", { class: "ends" }, make("span", {}, "33 and more before"), make("span", {}, "after")), make("figcaption", {}, said));
}
