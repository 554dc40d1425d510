import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { ramp, rgb, rootColor } from "./palette.js";
import { changeColor } from "./signed.js";

const { palette: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

test("colours between a palette's points lie on straight lines", () => {
  for (const { points, ramp: wanted } of cases) {
    const found = ramp(points);
    assert.equal(found.length, 768);
    found.forEach((value, n) => assert.ok(Math.abs(value - wanted[n]) <= 0.5 + 1e-9, `${n}: ${value}, not ${wanted[n]}`));
  }
});

test("the nearest point goes by the square root", () => {
  const five = ["a", "b", "c", "d", "e"];
  assert.deepEqual([-1, 0, 1 / 16, 0.25, 1, 2].map((share) => rootColor(five, share)), ["a", "a", "b", "c", "e", "e"]);
});

test("a change goes from nothing to less or more", () => {
  const ends = ["#0000ff", "#ffffff", "#ff0000"];
  assert.deepEqual([-2, -1, 0, 0.4, 1].map((share) => changeColor(ends, share)),
    [[0, 0, 255], [0, 0, 255], [255, 255, 255], [255, 153, 153], [255, 0, 0]]);
  assert.deepEqual(rgb("#0a7fff"), [10, 127, 255]);
});
