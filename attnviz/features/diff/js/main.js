import { byId, fill, make, table } from "./dom.js";
import { plural, shown, signedWeight } from "./numbers.js";
import { startFrame } from "./frame.js";
import { data } from "./data.js";
import { startSaving } from "./download.js";
import { startHelpByKey } from "./help.js";
import { untitled } from "./painter.js";
import { term } from "./words.js";
import { drawMaps, drawWhole, numbers } from "./maps.js";

/** @typedef {import("./types.js").Head} Head */

/** Roles gained and lost, in words. @param {Head} head */
function roles({ gained, lost }) {
  return [...gained.map((name) => `+${name}`), ...lost.map((name) => `−${name}`)].join(" ");
}

/** @param {Head} head */
function drawCard(head) {
  const { distance, changes } = head;
  const far = distance
    ? `Jensen-Shannon distance ${shown(distance.mean)} on average over ${plural(distance.rows, "row")}; largest ${shown(distance.largest)} at ${distance.token} (${distance.row})`
    : "no row could be compared";
  const sorted = changes.filter(({ change }) => change !== 0).sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
  fill(
    byId("card"),
    make("h2", {}, `Head ${head.name}`),
    make("p", {}, far, roles(head) ? `; roles ${roles(head)}` : ""),
    ...drawMaps(head),
    ...(sorted.length ? [make("h3", {}, "Scores that changed"), table(["score", "first", "second", "difference"], sorted.map(({ name, unit, before, after, change }) => [unit ? `${name} in ${unit}` : name, shown(before), shown(after), signedWeight(change)]))] : []),
  );
}

/** The head that the address names, or else the first. */
function current() {
  const name = decodeURIComponent(location.hash.slice(1));
  return data.heads.find((one) => one.name === name) || data.heads[0];
}

function show() {
  const head = current();
  for (const row of byId("heads").querySelectorAll("tbody tr")) {
    row.setAttribute("aria-current", String(/** @type {HTMLElement} */ (row).dataset.head === head.name));
  }
  drawCard(head);
}

function start() {
  startFrame(show);
  startSaving("attnviz-diff", (painter) => drawWhole(painter, current()), () => numbers(current()), { card: untitled((painter) => drawWhole(painter, current()), 44) });
  startHelpByKey([["← ↑ ↓ →", "from cell to cell, on the maps"], ["Tab", "to the heads and the maps"]]);
  fill(byId("below"), data.below);
  const changed = data.heads.some((head) => roles(head));
  const titles = ["head", "Jensen-Shannon distance, mean", "largest", ...(changed ? ["roles"] : [])];
  fill(/** @type {HTMLElement} */ (byId("heads").querySelector("thead")), make("tr", {}, ...titles.map((title) => make("th", { scope: "col", ...(title === "roles" ? { title: "+ gained, − lost" } : {}) }, title === "roles" ? "roles + −" : title))));
  fill(/** @type {HTMLElement} */ (byId("heads").querySelector("tbody")), ...data.heads.map((head) => {
    const { name, distance } = head;
    const cells = [make("a", { href: `#${name}` }, name), distance ? shown(distance.mean) : "", distance ? shown(distance.largest) : "", ...(changed ? [roles(head)] : [])];
    const row = make("tr", { "data-head": name }, ...cells.map((cell) => make("td", {}, cell)));
    row.addEventListener("click", () => { location.hash = name; });
    return row;
  }));
  fill(
    byId("methods"),
    make("p", {}, "Distance: the ", make("button", { type: "button", class: "term", ...term("Jensen-Shannon distance") }, "Jensen-Shannon distance"), ` of a head's rows in both runs, from 0 (the same weights) to 1 (none in common); the heads stand by its mean. Rows and keys belong together by ${data.align}.`),
    ...data.origin.map((said, n) => make("p", {}, `${n ? "Second" : "First"} run: ${said}.`)),
  );
  fill(byId("notes"), ...data.notes.map((note) => make("p", {}, note)));
  addEventListener("hashchange", show);
  addEventListener("resize", show);
  show();
}

start();
