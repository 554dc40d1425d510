import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { load } from "./model.js";
import { Pass } from "./network.js";

const { network: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

/** @param {ArrayLike<number>} found @param {number[]} wanted @param {number} most */
function near(found, wanted, most) {
  assert.equal(found.length, wanted.length);
  wanted.forEach((value, n) => assert.ok(Math.abs(found[n] - value) <= most, `${n}: ${found[n]}, not ${value}`));
}

test("a pass has the weights and logits of its network", async () => {
  for (const { network, packed, ids, gates, maps, logits } of cases) {
    const pass = new Pass(await load(network, packed));
    pass.run(ids, Float32Array.from(gates));
    maps.forEach((wanted, layer) => near(pass.maps(layer), wanted, 1e-5));
    logits.forEach((wanted, position) => near(pass.logits(position), wanted, 1e-4));
  }
});

test("what was run before does not matter", async () => {
  for (const { network, packed, ids, gates, maps } of cases) {
    const pass = new Pass(await load(network, packed));
    pass.run([...ids.slice(0, 3), 8, 8], new Float32Array(gates.length).fill(1));
    pass.run(ids, new Float32Array(gates.length).fill(1));
    pass.run(ids, Float32Array.from(gates));
    maps.forEach((wanted, layer) => near(pass.maps(layer), wanted, 1e-5));
  }
});
