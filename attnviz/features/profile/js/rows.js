import { data, said } from "./data.js";
import { arrow, fill, make, painted, say } from "./dom.js";
import { figure, fixed, plural, signedText, wholePercent } from "./numbers.js";
import { readable, ramp } from "./palette.js";
import { get } from "./state.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Row} Row */

const AROUND = 5;
const colors = ramp(data.palette);

/** The ground and the ink of a weight in thousandths, by its square root. @param {number} weight */
export function ground(weight) {
  const step = 3 * Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, weight / 1000))));
  return readable([colors[step], colors[step + 1], colors[step + 2]]);
}

/** The place of a row's query among the tokens of its text. @param {Row} row */
function place(row) {
  return row[1] - data.texts[row[0]][3];
}

/** A token with its weight. @param {Row} row @param {number} at */
function token(row, at) {
  const [text, query, key, , , , , , weights] = row;
  const first = data.texts[text][3];
  const said = data.texts[text][4][at];
  const kinds = ["tok", at + first === query ? "query" : "", at + first === key ? "key" : ""].filter(Boolean).join(" ");
  const element = make("span", { class: kinds, title: `${said} ${fixed(weights[at] / 1000, 3)}` }, said.replace(/^·/, " ").replace(/^##/, ""));
  return weights[at] >= 20 ? painted(element, ground(weights[at])) : element;
}

/** Whether a token stands apart from the one before it. @param {Row} row @param {number} at */
function space(row, at) {
  const tokens = data.texts[row[0]][4];
  const spaced = tokens.some((text) => text.startsWith("·"));
  return !spaced && at > 0 && !tokens[at].startsWith("##") ? " " : "";
}

/** Tokens of a row around its query and its key, with what is left out. @param {Row} row */
function excerpt(row) {
  const length = data.texts[row[0]][4].length;
  const query = place(row);
  const key = row[2] - data.texts[row[0]][3];
  const near = (/** @type {number} */ at) => Math.abs(at - query) <= AROUND || Math.abs(at - key) <= 1;
  /** @type {(Node | string)[]} */
  const out = [];
  let gap = false;
  if (key < 0) out.push(`${row[3]} … `);
  for (let at = 0; at < length; at++) {
    if (!near(at)) {
      gap = true;
      continue;
    }
    if (gap) out.push(" … ");
    gap = false;
    out.push(space(row, at), token(row, at));
  }
  if (gap) out.push(" …");
  return out;
}

/** What the row is, in words. @param {Row} row */
function spoken(row) {
  const tokens = data.texts[row[0]][4];
  return `${tokens[place(row)]} looks at ${row[3]} with ${fixed(row[4], 2)}`;
}

/** All of a row. @param {Head} head @param {Row} row */
function detail(head, row) {
  const [text, query, , , , norm, written, effect, , relations, raises, lowers, next, added] = row;
  const [number, where, window, , tokens] = data.texts[text];
  const figures = [`weight ${fixed(row[4], 3)}`];
  if (norm !== null) figures.push(`largest α‖f(x)‖ ${figure(norm)}`);
  if (written !== null) figures.push(`wrote ${figure(written)}`);
  if (effect !== null) figures.push(`effect on the loss ${signedText(effect)} nats`);
  const own = tokens.filter((part) => !/^(<\|.*\|>|<\/?s>|\[[A-Z]+\])$/.test(part));
  const plain = own.map((part, n) => (n && !part.startsWith("##") && !tokens.some((each) => each.startsWith("·")) ? ` ${part}` : part.replace(/^·/, " ").replace(/^##/, ""))).join("").trim();
  return [
    make("p", { class: "whole" }, ...tokens.flatMap((_, at) => [space(row, at), token(row, at)])),
    make("p", {}, `${spoken(row)}: ${relations.length ? relations.map(said).join(", ") : "no relation that has a name"}`),
    make("p", { class: "soft" }, [...figures, `${where || `text ${number}`}${window ? `, window ${window + 1}` : ""}`].join(" · ")),
    ...(raises.length ? [make("p", {}, make("b", {}, "raises "), raises.join("  "), make("b", {}, "  lowers "), lowers.join("  "),
      ...(next !== null && added !== null ? [make("b", {}, "  next "), `${next} ${signedText(added)}`] : []))] : []),
    ...(plain.length > 400 ? [] : [make("p", { class: "soft" }, "where its key came from: ", make("code", {}, `attnviz sources ${JSON.stringify(plain)} --select ${head.name} --query ${query} --key ${row[2]} --model ${data.model}`))]),
  ];
}

/** Rows that the search leaves. @param {Row} row */
function wanted(row) {
  const find = get().find.trim().toLowerCase();
  if (!find) return true;
  return [data.texts[row[0]][4][place(row)], row[3]].some((text) => text.replace(/^·/, "").toLowerCase().includes(find));
}

/** The columns of deciles, and the row that is looked at; how many rows are shown. @param {Head} head */
export function decileParts(head) {
  const by = get().by;
  const deciles = head.deciles[by] || [];
  const looked = make("div", { class: "detail", "aria-live": "off" });
  /** @type {HTMLButtonElement | null} */
  let pinned = null;
  let count = 0;
  const most = Math.max(...deciles.map(([, , , written]) => written || 0), 1e-9);
  /** @param {Row} row */
  const look = (row) => fill(looked, ...detail(head, row));
  const columns = deciles.map(([low, high, rows, written, places], n) => {
    const bar = make("i", {});
    bar.style.width = `${(100 * (written || 0)) / most}%`;
    const buttons = places.map((at) => head.rows[at]).filter(wanted).map((row) => {
      count += 1;
      const button = make("button", { type: "button", class: "row", "aria-pressed": "false" }, ...excerpt(row));
      // a press is no look: what the box then says would move the row away before the click
      button.addEventListener("pointerenter", ({ pointerType }) => { if (!pinned && pointerType !== "touch") look(row); });
      button.addEventListener("focus", () => { if (!pinned && button.matches(":focus-visible")) look(row); });
      button.addEventListener("click", () => {
        const again = pinned === button;
        if (pinned) pinned.setAttribute("aria-pressed", "false");
        pinned = again ? null : button;
        if (pinned) button.setAttribute("aria-pressed", "true");
        look(row);
        say(spoken(row));
      });
      return button;
    });
    return make("div", { class: "decile", role: "group", "aria-label": `tenth ${n + 1} of 10` },
      make("h4", {}, `tenth ${n + 1}`, make("span", {}, `${figure(low)} to ${figure(high)}`), bar,
        make("span", {}, written === null ? plural(Math.round(rows), "row") : `${wholePercent(written)} of what it wrote${by === "effect" ? " in the rows drawn" : ""}`)), ...buttons);
  });
  const grid = make("div", { class: "deciles", role: "group", "aria-label": "rows by tenth: arrow keys move, Enter pins" }, ...columns);
  grid.addEventListener("keydown", (event) => move(event, columns));
  const first = deciles.flatMap(([, , , , places]) => places).map((at) => head.rows[at]).filter(wanted).at(-1);
  if (first) look(first);
  return { parts: [looked, grid], count };
}

/** Arrow keys, among the rows. @param {KeyboardEvent} event @param {HTMLElement[]} columns */
function move(event, columns) {
  const step = arrow(event);
  if (!step) return;
  const lists = columns.map((column) => [...column.querySelectorAll("button")]);
  const at = lists.findIndex((list) => list.includes(/** @type {HTMLButtonElement} */ (document.activeElement)));
  if (at < 0) return;
  const down = lists[at].indexOf(/** @type {HTMLButtonElement} */ (document.activeElement)) + step[1];
  let across = at + step[0];
  while (lists[across] && !lists[across].length) across += step[0];
  const list = lists[across];
  const to = list?.[Math.min(Math.max(down, 0), list.length - 1)];
  if (to) to.focus();
  event.preventDefault();
}
