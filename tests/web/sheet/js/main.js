import { byId, fill, make, table } from "./dom.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { legend } from "./legend.js";
import { mapCanvas } from "./mapfigure.js";
import { ramp, scheme } from "./palette.js";
import { shades } from "./shades.js";
import { changeColor } from "./signed.js";

/** @type {{ palette: string[], signed: { light: string[], dark: string[] } }} */
const data = JSON.parse(byId("data").textContent || "");
const TOKENS = ["The", "·cat", "·sat", "·on", "·the", "·mat"];
const COUNT = TOKENS.length;

/** A causal map whose rows sum to 1; with `change` what is more and less than even. @param {boolean} change */
function values(change) {
  return Array.from({ length: COUNT * COUNT }, (_, i) => {
    const [row, column] = [Math.trunc(i / COUNT), i % COUNT];
    const weight = column > row ? 0 : (1 + ((3 * row + 5 * column) % 7)) / Array.from({ length: row + 1 }, (_, c) => 1 + ((3 * row + 5 * c) % 7)).reduce((a, b) => a + b, 0);
    return change ? (weight - 1 / (row + 1) + 1) / 2 : weight;
  });
}

/** @param {boolean} masked @param {boolean} change @param {number} [marked] */
function map(masked, change, marked) {
  const ends = data.signed[scheme()];
  const colors = change ? Uint8ClampedArray.from(Array.from({ length: 256 }, (_, i) => changeColor(ends, i / 127.5 - 1)).flat()) : ramp(data.palette);
  const pixels = shades({ values: values(change), rows: COUNT, columns: COUNT, colors, factor: () => 1, root: !change, masked: masked ? (i) => i % COUNT > Math.trunc(i / COUNT) : null });
  return mapCanvas({ rows: COUNT, columns: COUNT, pixels, queries: TOKENS, keys: TOKENS, side: 150, marked }, "a map");
}

function draw() {
  const place = byId("legends");
  fill(place, make("h2", {}, "Legends"),
    make("p", { class: "legend" }, ...legend(data.palette, "0", "1, by the square root of the weight", false)),
    make("p", { class: "legend" }, ...legend(data.palette, "0", "0.83", true)),
    make("p", { class: "legend" }, ...legend(data.signed[scheme()], "−0.4", "+0.4; blue is more", true)));
  fill(/** @type {HTMLElement} */ (document.querySelector(".maps")), map(true, false), map(false, false), map(true, false, 3), map(true, true));
}

startFrame(draw);
startHelpByKey([["Esc", "close what is open"]]);
fill(byId("table"), table(["head", "does", "score"], [["1.4", "previous", "0.83"], ["2.0", "induction", "0.71"]]));
draw();
byId("open-term").focus();
