import { data, heads } from "./data.js";
import { startSaving } from "./download.js";
import { byId, fill, make } from "./dom.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { alongPart, classesPart, directionsPart, planePart, rulesPart, tokensPart } from "./figures.js";
import { plural } from "./numbers.js";
import { drawWhole } from "./picture.js";
import { decileParts } from "./rows.js";
import { fromHash, get, set, subscribe } from "./state.js";

/** One head. @param {import("./types.js").Head} head */
function one(head) {
  const deciles = decileParts(head);
  const part = make("section", { class: "one", "aria-label": `head ${head.name}` },
    make("h2", {}, `Head ${head.name}`, make("span", { class: "soft" }, head.roles.length ? `  ${head.roles.join(", ")}` : "  no role that is sure")),
    ...rulesPart(head),
    make("h3", {}, `Rows from every tenth of the ${data.said.criteria[get().by] || ""}`), ...deciles.parts,
    make("div", { class: "parts" }, classesPart(head), tokensPart(head), alongPart(head), planePart(head)),
    directionsPart(head));
  return { part, count: deciles.count };
}

function draw() {
  const { head, beside, by, find } = get();
  for (const [id, value] of [["head", head], ["beside", beside], ["by", by]]) /** @type {HTMLSelectElement} */ (byId(id)).value = value;
  const input = /** @type {HTMLInputElement} */ (byId("find"));
  if (document.activeElement !== input) input.value = find;
  const shown = [head, beside].filter(Boolean).flatMap((name) => heads.filter((one) => one.name === name)).map(one);
  byId("heads").classList.toggle("two", shown.length > 1);
  fill(byId("heads"), ...shown.map(({ part }) => part));
  fill(byId("count"), plural(shown.reduce((sum, { count }) => sum + count, 0), "row"));
  fill(byId("headline"), heads.find(({ name }) => name === head)?.headline || data.title);
  document.title = `${head} · ${data.title}`;
}

/** @param {string} id @param {[string, string][]} options */
function choose(id, options) {
  const select = /** @type {HTMLSelectElement} */ (byId(id));
  fill(select, ...options.map(([value, text]) => make("option", { value }, text)));
  select.addEventListener("change", () => set({ [id]: select.value }));
}

function start() {
  startFrame(draw);
  fill(byId("about"), data.about);
  fill(byId("closing"), data.closing);
  fill(byId("notes"), ...data.reasons.map((reason) => make("p", {}, reason)));
  choose("head", heads.map(({ name, roles }) => [name, roles.length ? `${name} ${roles[0]}` : name]));
  choose("beside", [["", "no other"], .../** @type {[string, string][]} */ (heads.map(({ name }) => [name, name]))]);
  choose("by", Object.entries(data.said.criteria));
  byId("beside-part").hidden = heads.length < 2;
  const links = Object.entries(data.links);
  byId("links").hidden = !links.length;
  fill(byId("links"), ...links.map(([name, href]) => make("a", { href }, name)));
  const find = /** @type {HTMLInputElement} */ (byId("find"));
  find.addEventListener("input", () => set({ find: find.value }));
  startSaving("attnviz-head", drawWhole, () => data.lines);
  startHelpByKey([["← ↑ ↓ →", "from row to row"], ["Enter", "pin a row, or let it go"]]);
  subscribe(draw);
  addEventListener("hashchange", fromHash);
  fromHash();
}

start();
