import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { all, back, onward, taken } from "./ways.js";

const { ways: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

/** @param {ArrayLike<number>} found @param {number[]} wanted */
function near(found, wanted) {
  assert.equal(found.length, wanted.length);
  wanted.forEach((value, n) => assert.ok(Math.abs(found[n] - value) < 1e-6, `${n}: ${found[n]}, not ${value}`));
}

test("shares along the ways are products of the layers", () => {
  for (const { count, steps, node, back: reached, onward: given } of cases) {
    const layers = steps.map((step) => Float32Array.from(step));
    for (let layer = 0; layer <= 3; layer++) {
      const lines = [];
      near(back(layers, count, { layer, nodes: [node] }, 0, lines), reached[layer]);
      near(onward(layers, count, { layer, nodes: [node] }, 0, lines), given[layer]);
      for (const [, step, from, to] of lines) assert.ok(step < 3 && from < count && to < count);
    }
  }
});

test("lines are those of at least the share that is asked for", () => {
  for (const { count, steps, lines } of cases) {
    const layers = steps.map((step) => Float32Array.from(step));
    assert.equal(all(layers, count, 0.25).length, lines);
    for (const [share, step, from, to] of all(layers, count, 0.25)) assert.equal(share, layers[step][to * count + from]);
  }
});

test("of a table rows are averaged, and columns added", () => {
  const table = Float32Array.of(0.25, 0.75, 0.5, 0.5);
  assert.deepEqual([...taken(table, 2, { layer: 1, nodes: [0, 1] })], [0.375, 0.625]);
  assert.deepEqual([...taken(table, 2, { layer: 0, nodes: [0, 1] })], [1, 1]);
});
