// Layers downwards, heads across: the word that each head raises most; and all of what the chosen one writes.
import { bar, barLine, signedBar } from "./bars.js";
import { arrow, byId, clamp, fill, make, painted, say } from "./dom.js";
import { fixed, signedText, wholePercent } from "./numbers.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { legend } from "./legend.js";
import { setAddress } from "./observed.js";
import { fitted, untitled } from "./painter.js";
import { ramp, readable, tones } from "./palette.js";

/** @typedef {import("./types.js").Head} Head */

/** @type {import("./types.js").Data} */
const data = JSON.parse(byId("data").textContent || "");
const colors = ramp(data.palette);
const most = Math.max(...data.heads.map(({ norm }) => norm), 1e-12);
const lines = data.rows.map((layer) => data.heads.filter((head) => head.layer === layer));
const across = Math.max(...lines.map((line) => line.length));
let chosen = 0;

/** The colour of what a head writes, by its length. @param {Head} head */
function paint({ norm }) {
  const at = 3 * Math.round((255 * norm) / most);
  return readable([...colors.slice(at, at + 3)]);
}

const boxes = data.heads.map((head) => {
  const [word] = head.raises[0] || [""];
  const box = make("td", { role: "gridcell", tabindex: -1, "aria-selected": "false", "aria-label": `head ${head.name}: ${word}`, title: `head ${head.name}: ${word}` }, make("bdi", {}, word));
  return painted(box, paint(head));
});

/** @param {string} title @param {[string, number][]} effects */
function effects(title, effects) {
  const largest = Math.max(...effects.map(([, value]) => Math.abs(value)));
  return effects.length ? [make("h3", {}, title), ...effects.map(([word, value]) => barLine(word, signedBar(value, largest), signedText(value)))] : [];
}

/** @param {number} n @param {boolean} [told] */
function choose(n, told = false) {
  boxes[chosen].setAttribute("aria-selected", "false");
  boxes[chosen].tabIndex = -1;
  chosen = n;
  const head = data.heads[n];
  boxes[n].setAttribute("aria-selected", "true");
  boxes[n].tabIndex = 0;
  fill(byId("name"), `Head ${head.name}`);
  fill(byId("numbers"), `length of what it writes ${fixed(head.norm, 2)}${head.inText === null ? "" : `; the word that it raises most stands in the text in ${head.inText} of rows (${data.chance})`}`);
  fill(byId("raises"), ...effects("raises most", head.raises));
  fill(byId("lowers"), ...effects("lowers most", head.lowers));
  fill(byId("recurring"), ...(head.recurring.length ? [make("h3", {}, "recurs among the five it raises most"), ...head.recurring.map(([word, share]) => barLine(word, bar(share), wholePercent(share)))] : []));
  if (told) say(`head ${head.name} raises ${head.raises.slice(0, 3).map(([word]) => word).join(", ")}`);
  setAddress(n !== data.first ? `#head=${head.name}` : "");
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  const way = arrow(event);
  if (!way) return;
  const row = lines.findIndex((line) => line.includes(data.heads[chosen]));
  const [along, down] = way;
  const line = lines[clamp(row + down, 0, lines.length - 1)];
  const head = line[clamp(lines[row].indexOf(data.heads[chosen]) + along, 0, line.length - 1)];
  choose(data.heads.indexOf(head), true);
  boxes[chosen].focus();
  event.preventDefault();
}

/** The whole table. @param {import("./drawing.js").Painter} painter */
function drawWhole(painter) {
  const [wide, high, left, top] = [78, 24, 46, 46];
  const [text, soft] = tones("--text", "--soft");
  painter.text(data.title, 10, 16, { size: 14, color: text, weight: 650 });
  for (let n = 0; n < across; n++) painter.text(String(n), left + (n + 0.5) * wide, top - 10, { size: 11, color: soft, align: "center" });
  lines.forEach((line, row) => {
    painter.text(data.rows[row], left - 8, top + (row + 0.5) * high, { size: 11, color: soft, align: "right" });
    line.forEach((head, n) => {
      const { ground, ink } = paint(head);
      painter.rect(left + n * wide, top + row * high, wide - 1, high - 1, ground);
      painter.text(fitted(painter, head.raises[0]?.[0] || "", wide - 8, 11), left + (n + 0.5) * wide, top + (row + 0.5) * high, { size: 11, color: ink, align: "center" });
    });
  });
  const end = top + lines.length * high;
  painter.text("the word that each head raises most, coloured by the length of what it writes", 10, end + 14, { size: 11, color: soft });
  return { width: Math.max(left + across * wide + 10, painter.measure(data.title, 14, 650) + 20, 470), height: end + 30 };
}

fill(byId("about"), `${data.title}, read out by the last normalization and the LM head${data.several ? ", the mean over rows" : ""}`);
fill(byId("closing"), data.closing);
fill(byId("legend"), ...legend([...data.palette], "length of what a head writes: 0", fixed(most, 2), false));
const grid = byId("grid");
grid.style.setProperty("--across", String(across));
grid.setAttribute("role", "grid");
grid.setAttribute("aria-label", "the word that each head raises most");
grid.append(
  make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "layer"), ...Array.from({ length: across }, (_, n) => make("th", { scope: "col" }, String(n))))),
  make("tbody", {}, ...lines.map((line, row) => make("tr", {}, make("th", { scope: "row" }, data.rows[row]), ...line.map((head) => boxes[data.heads.indexOf(head)])))));
grid.addEventListener("click", (event) => {
  const n = boxes.indexOf(/** @type {any} */ (/** @type {Element} */ (event.target).closest("td")));
  if (n >= 0) choose(n, true);
});
grid.addEventListener("keydown", pressed);
startHelpByKey([["arrow keys", "another head"]]);
startFrame(() => {});
startSaving("attnviz-lens-heads", drawWhole, () => data.table, { card: untitled(drawWhole, 26) });
const asked = data.heads.findIndex(({ name }) => `#head=${name}` === decodeURIComponent(location.hash));
choose(asked < 0 ? data.first : asked);
document.documentElement.dataset.busy = "0";
