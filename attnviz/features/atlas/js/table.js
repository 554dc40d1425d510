import { byId, fill, make } from "./dom.js";
import { figure, interval, plural, times, wholePercent } from "./numbers.js";
import { get, set, subscribe } from "./state.js";
import { term } from "./words.js";
import { data, heads, metric, roleSign, words } from "./data.js";

/** @typedef {import("./types.js").Head} Head */

/** Searches one click away, where they find anything. */
const QUICK = ["needed", "induction", "previous", "syntactic", "coreference", "copies"];

const mostEffect = Math.max(0, ...heads.map(({ effect }) => Math.abs(effect?.effect || 0)));

/** The terms of the glossary behind titles. @type {Record<string, Record<string, string>>} */
const TERMS = { does: term("role"), sink: term("attention sink"), finds: term("syntactic"), copies: term("copying score"), feeds: term("composition") };

/** A value of a file. @typedef {string | number | null | undefined} Value */
/**
 * A column: what it is sorted by, what stands in it, and `file`, what a file has of it: numbers as
 * numbers, each in a column of its own, named by `files`.
 * @typedef {{ title: string, of: (head: Head) => number | string | null, cell: (head: Head) => (Node | string)[], files: string[], file: (head: Head) => Value[], there?: boolean, more?: boolean }} Column
 */

/** A number with its interval. @param {string} name */
function ends(name) {
  return [name, `${name}_low`, `${name}_high`];
}

/** @type {Column[]} */
const COLUMNS = [
  { title: "head", of: ({ layer, head, site }) => `${site}${layer * 1000 + head}`.padStart(12), cell: ({ name }) => [make("a", { href: `#${name}` }, name)], files: ["head"], file: ({ name }) => [name] },
  { title: "does", of: ({ does }) => does && -does.mean, cell: ({ does, scores }) => (does ? [roleSign(does), does.name, ...scored(does.mean, scores[does.score])] : []), files: ["does", ...ends("does_mean")], file: ({ does, scores }) => (does ? [does.name, does.mean, scores[does.score]?.low, scores[does.score]?.high] : []) },
  { title: "sink", of: ({ rests }) => rests && -rests.mean, cell: ({ rests }) => (rests ? [`${rests.name} ${figure(rests.mean)}`] : []), files: ["rests", "rests_mean"], file: ({ rests }) => (rests ? [rests.name, rests.mean] : []) },
  { title: metric ? `ablated: ${metric.name} in ${metric.unit}` : "", there: Boolean(metric), of: ({ effect }) => effect && -effect.effect, cell: effectCell, files: ends("effect"), file: ({ effect }) => (effect ? [effect.effect, effect.low, effect.high] : []) },
  { title: "finds", more: true, there: heads.some(({ relations }) => relations.length), of: ({ relations }) => (relations[0] ? -relations[0].margin : null), cell: ({ relations }) => relations.slice(0, 1).map(({ relation, accuracy, count, offset_accuracy }) => `${relation} ${wholePercent(accuracy)} of ${count} (offset ${wholePercent(offset_accuracy)})`), files: ["relation", ...ends("relation_accuracy"), "relation_count", "offset_accuracy"], file: ({ relations: [found] }) => (found ? [found.relation, found.accuracy, found.low, found.high, found.count, found.offset_accuracy] : []) },
  { title: "copies", more: true, there: heads.some(({ copying }) => copying), of: ({ copying }) => (copying ? -(copying.first ?? copying.plain ?? 0) : null), cell: ({ copying }) => (copying ? [figure(copying.first ?? copying.plain ?? 0, true)] : []), files: ["copying"], file: ({ copying }) => [copying && (copying.first ?? copying.plain)] },
  { title: "feeds", more: true, there: heads.some(({ feeds }) => feeds.length), of: ({ feeds }) => (feeds[0] ? -feeds[0].excess : null), cell: ({ feeds }) => feeds.slice(0, 1).map(({ side, reader, ratio }) => `${side} of ${reader} ${figure(ratio)}`), files: ["feeds", "feeds_ratio"], file: ({ feeds: [first] }) => (first ? [`${first.side} of ${first.reader}`, first.ratio] : []) },
  { title: "looks at, beyond its frequency", more: true, of: ({ strings: [first] }) => (first ? -first.weight * Math.log(first.weight / first.uniform) : null), cell: ({ strings }) => strings.slice(0, 3).map(({ text, weight, uniform }, n) => `${n ? ", " : ""}${text} ${wholePercent(weight)} (${times(weight / uniform)})`), files: ["string", "string_weight", "string_uniform"], file: ({ strings: [first] }) => (first ? [first.text, first.weight, first.uniform] : []) },
];

/** @param {number} mean @param {import("./types.js").Score | undefined} score */
function scored(mean, score) {
  return [` ${figure(mean)}`, make("span", { class: "interval" }, score ? interval(score.low, score.high) : "")];
}

/** @param {Head} head */
function effectCell({ effect }) {
  if (!effect) return [];
  const tint = make("span", { class: `tint ${effect.effect * (metric?.orange || -1) > 0 ? "orange" : "blue"}` }, figure(effect.effect, true));
  tint.style.setProperty("--strength", `${mostEffect ? 42 * Math.sqrt(Math.abs(effect.effect) / mostEffect) : 0}%`);
  return [tint, make("span", { class: "interval" }, interval(effect.low, effect.high, (value) => figure(value, true)))];
}

for (const [n, { title, orange }] of data.atlas.measures.entries()) {
  COLUMNS.push({
    title, more: true, of: ({ measured }) => (measured[n] ? -measured[n][0] : null),
    cell: ({ measured }) => (measured[n] ? [figure(measured[n][0], Boolean(orange)), make("span", { class: "interval" }, interval(measured[n][1], measured[n][2]))] : []),
    files: ends(title), file: ({ measured }) => measured[n] || [],
  });
}
const columns = COLUMNS.filter(({ there }) => there !== false);
/** Rows that are there at once: of very many heads the first, by whatever they are sorted by. */
const LISTED = 400;
/** @type {Map<Head, HTMLElement>} */
const rows = new Map();
/** What the table is of, listed or not. @type {Head[]} */
let found = heads;

/** The row of a head, made when it is first listed. @param {Head} one */
function rowOf(one) {
  const made = rows.get(one);
  if (made) return made;
  const row = make("tr", { "data-head": one.name, "aria-selected": String(get().head === one.name) }, ...columns.map(({ cell, more, title }) => make("td", { "data-column": title, class: more ? "more" : "" }, ...cell(one))));
  row.addEventListener("click", () => set({ head: one.name }));
  rows.set(one, row);
  return row;
}

export function startTable() {
  const head = /** @type {HTMLElement} */ (byId("heads").querySelector("thead"));
  head.append(make("tr", {}, ...columns.map(({ title, more }) => {
    const button = make("button", { type: "button", ...(title.startsWith("ablated") ? term("ablation") : TERMS[title]) }, title);
    button.addEventListener("click", () => {
      const { sort, up } = get();
      const same = (sort || columns[0].title) === title;
      set({ sort: title === columns[0].title ? "" : title, up: same ? !up : false });
    });
    return make("th", { scope: "col", "data-column": title, class: more ? "more" : "" }, button);
  })));
  const box = /** @type {HTMLInputElement} */ (byId("find"));
  box.addEventListener("input", () => set({ find: box.value }));
  for (const word of QUICK.filter((word) => heads.some((one) => words(one).includes(word)))) {
    const button = make("button", { type: "button" }, word);
    button.addEventListener("click", () => {
      set({ find: get().find === word ? "" : word });
    });
    byId("quick").append(button);
  }
  const boxes = columns.slice(1).map(({ title }) => {
    const one = make("input", { type: "checkbox", "data-column": title });
    one.addEventListener("change", () => {
      const { without } = get();
      set({ without: one.checked ? without.filter((name) => name !== title) : [...without, title] });
    });
    return make("label", { class: "check" }, one, title);
  });
  fill(/** @type {HTMLElement} */ (byId("columns").querySelector(".menu-inside")), ...boxes);
  subscribe(draw);
}

function draw() {
  const { find, sort, up: upwards, without } = get();
  const downwards = !upwards;
  const sorted = Math.max(0, columns.findIndex(({ title }) => title === sort));
  const box = /** @type {HTMLInputElement} */ (byId("find"));
  if (box !== document.activeElement) box.value = find;
  const wanted = find.toLowerCase().split(/\s+/).filter(Boolean);
  found = heads.filter((head) => wanted.every((word) => words(head).includes(word)));
  const { of } = columns[sorted];
  found.sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    return (x < y ? -1 : x > y ? 1 : 0) * (downwards ? 1 : -1);
  });
  fill(/** @type {HTMLElement} */ (byId("heads").querySelector("tbody")), ...found.slice(0, LISTED).map(rowOf));
  for (const [n, th] of byId("heads").querySelectorAll("thead th").entries()) {
    th.setAttribute("aria-sort", n === sorted ? (downwards ? "ascending" : "descending") : "none");
  }
  for (const cell of /** @type {NodeListOf<HTMLElement>} */ (byId("heads").querySelectorAll("[data-column]"))) cell.hidden = without.includes(cell.dataset.column || "");
  for (const one of /** @type {NodeListOf<HTMLInputElement>} */ (byId("columns").querySelectorAll("input"))) one.checked = !without.includes(one.dataset.column || "");
  for (const button of byId("quick").children) button.setAttribute("aria-pressed", String(wanted.join(" ") === button.textContent));
  const cut = found.length > LISTED ? `, the first ${LISTED} listed` : "";
  fill(byId("count"), (found.length === heads.length ? `${plural(heads.length, "head")} of ${data.atlas.model}` : `${found.length} of ${plural(heads.length, "head")}`) + cut);
}

/** The columns that are shown as numbers, a line a head, listed or not. */
export function* numbers() {
  const kept = columns.filter(({ title }) => !get().without.includes(title));
  yield kept.flatMap(({ files }) => files);
  for (const head of found) yield kept.flatMap(({ files, file }) => {
    const values = file(head);
    return files.map((_, n) => String(values[n] ?? ""));
  });
}

/** Mark the row of the head that is shown. @param {string} name */
export function mark(name) {
  for (const [head, row] of rows) row.setAttribute("aria-selected", String(head.name === name));
}
