import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { known, knownChange, upward, withError } from "./digits.js";

const { digits: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

test("only digits are written that both bounds have", () => {
  for (const [low, high, wanted] of cases) assert.equal(known(low, high), wanted, `${low} to ${high}`);
});

test("a change has a sign, or a bound", () => {
  assert.equal(knownChange(0.25, 0.25), "+0.2500");
  assert.equal(knownChange(-0.25, -0.25), "−0.2500");
  assert.equal(knownChange(-0.001, 0.0032), "±0.004");
  assert.equal(knownChange(0, 0), "0");
});

test("bounds are rounded outwards", () => {
  assert.equal(upward(0.0312, 1), "0.04");
  assert.equal(upward(0.04, 1), "0.04");
  assert.equal(upward(0, 1), "0");
  for (const [low, high] of cases.filter(([a, b]) => a < b)) {
    const [middle, half] = withError(low, high).map(Number);
    assert.ok(middle - half <= low && high <= middle + half, `${low} to ${high}: ${middle} ± ${half}`);
  }
});
