// Who needs whom: each cell is a pair that is cut in all heads. Choosing one shows its layers, its heads,
// and what the model writes meanwhile.
import { chart } from "./curves.js";
import { byId, fill, make, table } from "./dom.js";
import { startSaving } from "./download.js";
import { fitted, shifted } from "./painter.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { legend } from "./legend.js";
import { figure, signedText, wholePercent } from "./numbers.js";
import { inkOn, scheme, tones } from "./palette.js";
import { changeColor } from "./signed.js";
import { paintSvg } from "./svg.js";

/** @typedef {import("./types.js").Effect} Effect */

/** @type {import("./types.js").Data} */
const data = JSON.parse(byId("data").textContent || "");
const WORST = data.worse || 1;
const whole = data.effects.filter((effect) => effect.kind === "all");
const most = Math.max(...whole.map((effect) => Math.abs(effect.value)), 1e-12);
let chosen = [...whole].sort((a, b) => Math.abs(b.value) - Math.abs(a.value))[0];

/** The cells, in the colours of the theme. */
function drawMatrix() {
  const ends = data.colors[scheme()];
  const lines = data.rows.map((row) => {
    const cells = data.keys.map((key) => {
      const effect = whole.find((one) => one.rows === row && one.keys === key);
      if (!effect) return make("td", {});
      const text = signedText(effect.value) + (effect.sure ? "*" : "");
      const button = make("button", { type: "button", "aria-pressed": String(effect === chosen), "aria-label": `${text}: ${effect.does}` }, text);
      const color = changeColor(ends, (WORST * effect.value) / most);
      button.style.background = `rgb(${color.join(" ")})`;
      button.style.color = inkOn(...color);
      button.addEventListener("click", () => {
        chosen = effect;
        show();
        const again = document.querySelector("#matrix [aria-pressed=true]");
        if (again instanceof HTMLElement) again.focus();
      });
      return make("td", {}, button);
    });
    return make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, row)), ...cells);
  });
  const head = make("tr", {}, make("th", {}, "rows ↓ keys →"), ...data.keys.map((key) => make("th", { scope: "col" }, make("bdi", {}, key))));
  fill(byId("matrix"), make("thead", {}, head), make("tbody", {}, ...lines));
  const [low, high] = data.worse ? ["better without", "worse without"] : ["the same", "another prediction"];
  fill(byId("legend"), ...legend(data.worse ? ends : ends.slice(1), low, high, false));
}

/** The cells, for a card. @param {import("./drawing.js").Painter} painter */
function drawCells(painter) {
  const [wide, high, left, top] = [72, 26, 110, 22];
  const [text, soft] = tones("--text", "--soft");
  const ends = data.colors[scheme()];
  data.keys.forEach((key, column) => painter.text(fitted(painter, key, wide - 6, 11), left + (column + 0.5) * wide, top / 2, { size: 11, color: soft, align: "center" }));
  data.rows.forEach((row, line) => {
    painter.text(fitted(painter, row, left - 14, 11), left - 8, top + (line + 0.5) * high, { size: 11, color: text, align: "right" });
    data.keys.forEach((key, column) => {
      const effect = whole.find((one) => one.rows === row && one.keys === key);
      if (!effect) return;
      const color = changeColor(ends, (WORST * effect.value) / most);
      painter.rect(left + column * wide, top + line * high, wide - 1, high - 1, `rgb(${color.join(",")})`);
      painter.text(signedText(effect.value), left + (column + 0.5) * wide, top + (line + 0.5) * high, { size: 12, color: inkOn(...color), align: "center", weight: 650 });
    });
  });
  return { width: left + data.keys.length * wide, height: top + data.rows.length * high };
}

/** The cells, and the curve of the chosen pair where there is one. @param {import("./drawing.js").Painter} painter */
function drawWhole(painter) {
  const cells = drawCells(painter);
  const svg = /** @type {SVGSVGElement | null} */ (document.querySelector("#curve svg"));
  if (!svg) return cells;
  const { width, height } = paintSvg(shifted(painter, 0, cells.height + 24), svg);
  return { width: Math.max(cells.width, width), height: cells.height + 24 + height };
}

/** The change by the layer around which all heads are cut, and that of the control. @param {Effect[]} windows */
function curve(windows) {
  /** @param {(one: Effect) => number | null} value @returns {[number, number][]} */
  const points = (value) => windows.map((one) => [one.layer || 0, value(one) || 0]);
  const values = windows.flatMap((one) => [one.value, one.control || 0, ...(one.ends || [])]);
  const up = [...new Set([Math.min(0, ...values), 0, Math.max(0, ...values)])];
  const step = Math.ceil(windows.length / 12);
  return chart({
    width: 480, height: 220, label: "change by layer", title: `layer${data.unit ? `; ${data.unit}` : ""}`,
    across: points(() => 0).filter((_, n) => n % step === 0).map(([layer]) => [layer, String(layer)]), up: up.map((value) => [value, figure(value)]),
    curves: [
      ...(windows.every((one) => one.control !== null) ? [{ kind: "random", points: points((one) => one.control) }] : []),
      { kind: "cut", points: points((one) => one.value), band: windows.every((one) => one.ends) ? windows.map((one) => one.ends || [0, 0]) : undefined },
    ],
    dots: windows.map((one) => ({ kind: "dot", at: [one.layer || 0, one.value], r: 3.2, said: one.does })),
  });
}

/** A bar with the ring of the control. @param {Effect} effect @param {number} far */
function bar(effect, far) {
  const size = (50 * Math.abs(effect.value)) / far;
  const drawn = make("i", { class: effect.value * WORST > 0 ? "bad" : "good" });
  drawn.style.width = `${size}%`;
  drawn.style.left = `${effect.value < 0 ? 50 - size : 50}%`;
  const box = make("div", { class: "signed" }, drawn);
  if (effect.control !== null) {
    const ring = make("b", {});
    ring.style.left = `${50 + (50 * effect.control) / far}%`;
    box.append(ring);
  }
  return box;
}

/** The heads of the pair, those that go farthest first. */
function heads() {
  const some = data.effects.filter((one) => one.kind === "heads" && one.rows === chosen.rows && one.keys === chosen.keys);
  if (!some.length) return [];
  some.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const far = Math.max(...some.flatMap((one) => [Math.abs(one.value), Math.abs(one.control || 0)]), 1e-12);
  const lines = some.slice(0, 16).map((one) => make("div", { class: "head-line", title: one.does },
    make("bdi", {}, one.name), bar(one, far), make("span", {}, signedText(one.value) + (one.sure ? "*" : ""))));
  return [make("h2", {}, "heads"), ...lines];
}

/** What the model writes, as it is and while the pair is cut. */
function written() {
  const some = data.written.filter(([rows, keys]) => !rows || (rows === chosen.rows && keys === chosen.keys));
  if (!some.length) return [];
  const lines = some.map(([rows, , name, text, control]) => [rows ? name : "nothing cut", make("bdi", {}, text), make("bdi", {}, control)]);
  return [make("h2", {}, "what it writes"), table(["cut in", "it writes", "control"], lines)];
}

/** The chosen pair. */
function show() {
  drawMatrix();
  fill(byId("name"), `${chosen.rows} to ${chosen.keys}`);
  const matched = chosen.control === null || !chosen.matched ? "" : `, of which the control takes ${chosen.matched}`;
  fill(byId("does"), `${chosen.does}; ${wholePercent(chosen.weight)} of the weight is cut${matched}.`);
  const windows = data.effects.filter((one) => one.kind === "window" && one.rows === chosen.rows && one.keys === chosen.keys);
  fill(byId("curve"), ...(windows.length > 1 ? [make("h2", {}, `layers, ${data.window} at a time`), curve(windows)] : []));
  fill(byId("heads"), ...heads());
  fill(byId("written"), ...written());
}

/** Every cut with its figures. */
function* lines() {
  yield ["rows", "keys", "kind", "heads", "layer", "weight", "change", "low", "high", "control", "matched", "sure"];
  for (const one of data.effects) {
    const [low, high] = one.ends || ["", ""];
    yield [one.rows, one.keys, one.kind, one.name, one.layer ?? "", one.weight, one.value, low, high, one.control ?? "", one.taken ?? "", one.sure ?? ""].map(String);
  }
}

fill(byId("about"), data.title);
fill(byId("spans"), table(["part", "tokens", "text"], data.spans.map(([name, tokens, text]) => [make("bdi", {}, name), String(tokens), make("bdi", {}, text)])));
fill(byId("measured"), data.measured);
fill(byId("notes"), data.notes.join(" "));
fill(byId("closing"), data.closing);
startSaving("attnviz-knockout", drawWhole, lines, { card: drawCells });
startHelpByKey([["Tab", "from pair to pair"], ["Enter", "choose a pair"]]);
startFrame(show);
show();
document.documentElement.dataset.busy = "0";
