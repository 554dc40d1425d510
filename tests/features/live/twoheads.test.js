import assert from "node:assert/strict";
import test from "node:test";
import { firstShares, outputs } from "./twoheads.js";

/** @param {number} found @param {number} wanted @param {number} off */
function near(found, wanted, off) {
  assert.ok(Math.abs(found - wanted) < off, `${found} for ${wanted}`);
}

test("keys of length 1 share both outputs equally, a key of no length is one of four", () => {
  for (const share of firstShares(1)) near(share, 1 / 2, 1e-8);
  const [one, two] = firstShares(0);
  near(one, Math.exp(-20), 1e-15);
  near(two, 1 / 8, 1e-8); // the first head finds four keys alike
});

test("of a length that does not vary, neither do outputs", () => {
  for (const { mean, spread, shares } of outputs(0)) {
    near(mean, 0.5, 1e-8);
    near(spread, 0, 1e-8);
    assert.equal(shares.indexOf(1), 12, "all in the middle of 25 bins");
  }
});

test("spreads are those of the limit of large queries", () => {
  const [one, two] = outputs(0.5);
  // softmax of two is a step at 1, as wide as the integral of p (1 − p), which is 1 / 20
  const density = 1 / Math.sqrt(2 * Math.PI * 0.5);
  near(one.mean, 1 / 2, 1e-4);
  near(one.spread, Math.sqrt(1 / 4 - density / 20), 1e-3);
  // of two heads the first finds its key where exp(20 length) > 3: Φ((1 − ln 3 / 20) √2) = 0.9093
  near(two.mean, 0.9093 / 2, 1e-3);
  near(two.spread, Math.sqrt(0.9093 * 0.0907 - 0.231 / 20) / 2, 2e-3);
});

test("histograms are all of it, and one head has two ends where two heads have a middle", () => {
  const [one, two] = outputs(0.5).map(({ shares }) => shares);
  for (const shares of [one, two]) near(shares.reduce((a, b) => a + b, 0), 1, 1e-12);
  assert.ok(one[0] > 0.4 && one[24] > 0.4 && one[12] < 0.02);
  assert.ok(two[12] > 0.8);
});
