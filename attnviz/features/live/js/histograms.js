import { byId, fill, make } from "./dom.js";
import { productsOf, softmax, spread } from "./figures.js";
import { fixed, wholePercent } from "./numbers.js";
import { draw } from "./svg.js";

/** Bins of a histogram, in so many standard deviations of the products on either side. */
const [BINS, SIDE] = [48, 4];
/** Scores that a softmax is taken of. */
const ROW = 10;

/** Products of random queries and keys, and the same divided, on one axis. @param {number} width of a head; 0: neither @param {number} divisor */
export function drawHistograms(width, divisor) {
  byId("histograms").hidden = !width;
  if (!width) return;
  const products = productsOf(width);
  const end = SIDE * Math.sqrt(width);
  const scores = products.map((product) => product / divisor);
  let sum = 0;
  for (let n = 0; n < scores.length; n += ROW) sum += Math.max(...softmax(scores.slice(n, n + ROW), 1));
  const largest = fixed((sum * ROW) / scores.length, 2);
  fill(byId("histograms"), ofValues("q·k", products, end), ofValues(`score: q·k ÷ ${fixed(divisor, 2)}`, scores, end));
  fill(byId("shares-said"), `random vectors of ${width} numbers; of the softmax of ${ROW} such scores the largest share is ${largest} on average`);
}

/** @param {string} title @param {number[]} values @param {number} end of the axis, on both sides */
function ofValues(title, values, end) {
  const counts = new Array(BINS).fill(0);
  let beyond = 0;
  for (const value of values) {
    if (Math.abs(value) < end) counts[Math.floor(((value / end + 1) / 2) * BINS)]++;
    else beyond++;
  }
  const said = `${title}, standard deviation ${fixed(spread(values), 2)}${beyond ? `, ${wholePercent(beyond / values.length)} beyond this axis` : ""}`;
  return histogram(said, counts, [-end, 0, end].map((value) => fixed(value, 0)));
}

/** Bars from left to right, the highest as high as the picture. @param {string} said @param {number[]} counts @param {string[]} ends what stands below, from left to right */
export function histogram(said, counts, ends) {
  const most = Math.max(...counts);
  const picture = draw("svg", { viewBox: `0 0 ${counts.length} 24`, preserveAspectRatio: "none", role: "img", "aria-label": said },
    ...counts.flatMap((count, n) => (count ? [draw("rect", { x: n, y: 24 - (24 * count) / most, width: 1, height: (24 * count) / most, "data-count": count })] : [])));
  return make("figure", {}, make("figcaption", {}, said), picture, make("span", { class: "ends small" }, ...ends.map((end) => make("span", {}, end))));
}
