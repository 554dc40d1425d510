import { data, said } from "./data.js";
import { chart } from "./curves.js";
import { make, painted, table } from "./dom.js";
import { figure, fixed, interval, thousands, times, wholePercent } from "./numbers.js";
import { tones } from "./palette.js";
import { ground } from "./rows.js";
import { get, set } from "./state.js";
import { draw } from "./svg.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Share} Share */

/** What may be wider than its place, and then scrolls. @param {string} name @param {Node} inside */
function wide(name, inside) {
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": name }, inside);
}

/** A share with its interval. @param {Share} share */
function shareText([value, , , low, high]) {
  return value === null ? "–" : `${wholePercent(value)}${interval(low, high, wholePercent)}`;
}

/** What sets its key apart, by rules. @param {Head} head */
export function rulesPart(head) {
  const rows = head.rules.flatMap((leaf) => leaf.rules.length
    ? leaf.rules.map(([name, ...share]) => [leaf.where, said(name), wholePercent(head.halves[1] ? ((share[0] || 0) * share[1]) / head.halves[1] : 0), shareText(share), share[2] === null ? "" : wholePercent(share[2])])
    : [[leaf.where, "no rule", wholePercent(leaf.share), "", ""]]);
  rows.push(["by none of these", "", shareText(head.unexplained), "", ""]);
  const [found, measured] = head.halves;
  return [
    make("h3", {}, "What sets its strongest key apart"),
    wide("rules", table(["where", "strongest key", "of all rows", "precision", "chance"], rows)),
    make("p", { class: "small" }, `Rules found on ${thousands(found)} rows of half of the texts; figures are of ${thousands(measured)} rows of the others.`),
    ...head.calibrations.filter(({ holds }) => holds[0] !== null).map(({ role, holds, possible, residue }) => make("p", { class: "said" },
      `As its role ${role} says in ${shareText(holds)} of the ${wholePercent(possible)} of rows where it could`,
      residue.length ? `; in the others ${residue.slice(0, 4).map(([name, share]) => `${said(name)} ${wholePercent(share)}`).join(", ")}.` : ".")),
  ];
}

/** Weight from class to class. @param {Head} head */
export function classesPart(head) {
  const queries = [...new Set(head.classes.map(([query]) => query))];
  const keys = [...new Set(head.classes.map(([, key]) => key))];
  const rows = queries.map((query) => make("tr", {}, make("th", { scope: "row" }, said(query)), ...keys.map((key) => {
    const cell = head.classes.find(([from, to]) => from === query && to === key);
    if (!cell) return make("td", {}, "");
    const [, , weight, uniform] = cell;
    return painted(make("td", { title: `uniform attention ${wholePercent(uniform)}` }, wholePercent(weight)), ground(1000 * weight));
  })));
  return make("div", {}, make("h3", {}, "From class to class"), wide("weight from class to class",
    make("table", { class: "heat" }, make("thead", {}, make("tr", {}, make("td", {}), ...keys.map((key) => make("th", { scope: "col" }, said(key))))), make("tbody", {}, ...rows))),
  make("p", { class: "small" }, "Of the weight of a row's class, the share on keys of a column's; pointing says that of uniform attention."));
}

/** Tokens and pairs of tokens. @param {Head} head */
export function tokensPart(head) {
  const lines = (/** @type {[string, number, number][]} */ tokens) => tokens.map(([text, weight, uniform]) => [text, wholePercent(weight), wholePercent(uniform), uniform > 0 ? times(weight / uniform) : ""]);
  return make("div", {}, make("h3", {}, "Tokens that meet more often"),
    ...(head.pairs.length ? [table(["token", "its key", "rows", "uniform", "times"], head.pairs.map(([query, key, rows, expected, lift]) => [query, key, thousands(rows), figure(expected), times(lift)])),
      make("p", { class: "small" }, `Numbers of rows are too large by ${figure(head.pairError)} at most, in 98 % of cases.`)] : [make("p", {}, "None surely.")]),
    make("h3", {}, "Most weight for their frequency"), table(["key", "weight", "uniform", "times"], lines(head.specific)),
    make("h3", {}, "Least"), table(["key", "weight", "uniform", "times"], lines(head.unspecific)));
}

/** Entropy and the sink along the text. @param {Head} head */
export function alongPart(head) {
  const parts = [along(head, "entropy, bits", 3), along(head, "weight on the sink", 5, 1)];
  return make("div", {}, make("h3", {}, "Along the text"), ...parts);
}

/** @param {Head} head @param {string} title @param {3 | 5} column @param {number} [most] */
function along(head, title, column, most) {
  const next = /** @type {4 | 6} */ (column + 1);
  const top = most || Math.max(...head.along.flatMap((stretch) => [stretch[column], stretch[next]]), 0.1);
  const said = head.along.map((stretch) => `${stretch[0]} to ${stretch[1]}: ${figure(stretch[column])}, uniform ${figure(stretch[next])}`).join("; ");
  const svg = chart({
    width: 420, height: 130, label: `${title} by position: ${said}`, up: [[0, "0"], [top, figure(top)]], across: head.along.map((stretch, n) => [n, String(stretch[0])]),
    curves: [{ kind: "even", points: head.along.map((stretch, n) => [n, stretch[next]]) }, { kind: "own", points: head.along.map((stretch, n) => [n, stretch[column]]) }],
  });
  return make("figure", {}, svg, make("figcaption", {}, `${title}, by position; dashed: uniform attention`));
}

const MARKS = ["--up", "--down", "--mark", "--soft", "--text", "--masked"];

/** Vectors of rows in a plane. @param {Head} head */
export function planePart(head) {
  const names = Object.keys(head.planes);
  if (!names.length) return make("div", {});
  const { plane, color } = get();
  const name = names.includes(plane) ? plane : names[0];
  const [kept, points] = head.planes[name];
  const [wide, high] = [420, 300];
  const ends = [0, 1].map((axis) => { const own = points.map((point) => point[axis]); return [Math.min(...own), Math.max(...own)]; });
  const at = (/** @type {[number, number]} */ point) => [0, 1].map((axis) => (point[axis] - ends[axis][0]) / Math.max(ends[axis][1] - ends[axis][0], 1e-9));
  const classes = [...new Set(data.points.map(([, kind]) => kind))];
  const longest = Math.max(...data.points.map(([, , position]) => position), 1);
  const shade = (/** @type {number} */ n) => color === "class" ? tones(...MARKS)[classes.indexOf(data.points[n][1]) % MARKS.length]
    : ground(1000 * (color === "decile" ? head.decile[n] / 9 : data.points[n][2] / longest) ** 2).ground;
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${name} of ${points.length} rows in a plane that keeps ${wholePercent(kept[0] + kept[1])} of their variance` });
  points.forEach((point, n) => {
    const [x, y] = at(point);
    const dot = draw("circle", { cx: fixed(8 + x * (wide - 16), 1), cy: fixed(8 + (1 - y) * (high - 16), 1), r: 3.5, fill: shade(n), "fill-opacity": 0.75 });
    dot.append(draw("title", {}, `${data.points[n][0]}, position ${data.points[n][2]}, tenth ${head.decile[n] + 1}`));
    svg.append(dot);
  });
  const choose = (/** @type {string} */ title, /** @type {"plane" | "color"} */ of, /** @type {string[]} */ values, /** @type {string} */ now) => {
    const select = make("select", { "aria-label": title }, ...values.map((value) => make("option", { value, selected: value === now }, value)));
    select.addEventListener("change", () => set({ [of]: select.value }));
    return make("span", { class: "pick" }, title, select);
  };
  const legend = color === "class" ? make("p", { class: "chips" }, ...classes.map((kind, n) => {
    const chip = make("i", {});
    chip.style.background = tones(MARKS[n % MARKS.length])[0];
    return make("span", {}, chip, said(kind));
  })) : make("p", { class: "small" }, color === "decile" ? "dark: the lowest tenth by weight; bright: the highest" : "dark: early in the text; bright: late");
  return make("div", {}, make("h3", {}, "Vectors in a plane"), make("div", { class: "choose" }, choose("of", "plane", names, name), choose("colour", "color", ["class", "position", "decile"], color)),
    svg, legend, make("p", { class: "small" }, `The plane keeps ${wholePercent(kept[0])} and ${wholePercent(kept[1])} of the variance of ${name} over all rows.`));
}

/** Singular directions in tokens. @param {Head} head */
export function directionsPart(head) {
  const one = (/** @type {string} */ title, /** @type {string[]} */ columns, /** @type {import("./types.js").Singular[]} */ directions) => directions.length
    ? [make("h3", {}, title), wide(title, table(["size", ...columns], directions.flatMap(([size, , first, second, other, across]) => [
      [fixed(size, 2), first.join("  "), second.join("  ")], ["", other.join("  "), across.join("  ")]])))] : [];
  return make("div", {}, ...one("W_QK: which tokens meet", ["tokens that look", "at"], head.qk), ...one("W_OV: what is written", ["for these that are read", "these are raised"], head.ov));
}
