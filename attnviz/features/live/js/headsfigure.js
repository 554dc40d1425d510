import { byId, fill, make } from "./dom.js";
import { histogram } from "./histograms.js";
import { fixed } from "./numbers.js";
import { get, set } from "./store.js";
import { draw } from "./svg.js";
import { outputs } from "./twoheads.js";

/** Variances that the curves are drawn through, beside 0; the largest standard deviation of a share. */
const [POINTS, MOST] = [50, 0.5];
const NAMES = ["one head", "two heads"];
/** @type {number[][] | null} */
let spreads = null;

export function startHeads() {
  byId("noise").addEventListener("input", (event) => set({ noise: Number(/** @type {HTMLInputElement} */ (event.target).value) }));
}

/** What one head and two make of a key whose length varies, or nothing. @param {boolean} shown */
export function drawHeads(shown) {
  byId("noise-line").hidden = !shown;
  byId("divisor-line").hidden = shown;
  if (!shown) return;
  const { noise } = get();
  const slider = /** @type {HTMLInputElement} */ (byId("noise"));
  if (slider !== document.activeElement) slider.value = String(noise);
  fill(byId("noise-said"), fixed(noise, 2));
  byId("histograms").hidden = false;
  fill(byId("shares-said"), "how much of value a is in the output; exact, as integrals over a normal distribution");
  fill(byId("histograms"), ...outputs(noise).map(({ mean, spread, shares }, n) =>
    histogram(`${NAMES[n]}: mean ${fixed(mean, 2)}, standard deviation ${fixed(spread, 2)}`, shares, ["0", "½", "1"])), curves(noise));
}

/** How the standard deviations grow with the variance. @param {number} noise */
function curves(noise) {
  spreads ||= Array.from({ length: POINTS + 1 }, (_, n) => outputs(n / POINTS).map(({ spread }) => spread));
  const found = spreads;
  const line = (/** @type {number} */ heads) => found.map((both, n) => `${n ? "L" : "M"}${n} ${24 * (1 - both[heads] / MOST)}`).join("");
  const said = "standard deviation, 0 to ½: above one head, below two";
  const picture = draw("svg", { viewBox: `0 0 ${POINTS} 24`, preserveAspectRatio: "none", role: "img", "aria-label": said },
    draw("path", { class: "now", d: `M${noise * POINTS} 0V24` }), ...NAMES.map((_, heads) => draw("path", { d: line(heads) })));
  return make("figure", {}, make("figcaption", {}, said), picture,
    make("span", { class: "ends small" }, ...["0", "variance of the length", "1"].map((end) => make("span", {}, end))));
}
