import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { changes } from "./changes.js";
import { isFast } from "./kernel.js";
import { load } from "./model.js";
import { Pass } from "./network.js";

const { network: cases, kernel } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

/** @param {ArrayLike<number>} found @param {number[]} wanted @param {number} most */
function near(found, wanted, most) {
  assert.equal(found.length, wanted.length);
  wanted.forEach((value, n) => assert.ok(Math.abs(found[n] - value) <= most, `${n}: ${found[n]}, not ${value}`));
}

test("a pass has the weights and logits of its network", async () => {
  for (const code of ["", kernel]) {
    for (const { network, packed, ids, gates, maps, logits } of cases) {
      const pass = new Pass(await load(network, packed, code));
      assert.equal(isFast(), code !== "");
      pass.run(ids, Float32Array.from(gates));
      maps.forEach((wanted, layer) => near(pass.maps(layer), wanted, 1e-5));
      logits.forEach((wanted, position) => near(pass.logits(position), wanted, 1e-4));
    }
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

test("a switch runs the layers from the first that differs on, and no others", async () => {
  for (const { network, packed, ids, gates } of cases) {
    const model = await load(network, packed);
    const { heads } = network;
    const all = new Float32Array(gates.length).fill(1);
    const before = new Pass(model);
    before.run(ids, all);
    assert.deepEqual(before.computed, { attended: 2, passed: 2 });
    before.run(ids, all);
    assert.deepEqual(before.computed, { attended: 0, passed: 0 }, "nothing has changed");
    for (let layer = 0; layer < 2; layer++) {
      const off = all.slice();
      off[layer * heads] = 0;
      const [after, alone] = [new Pass(model), new Pass(model)];
      after.run([1, 2, 1], off);
      after.run(ids, off, true, before);
      alone.run(ids, off);
      assert.deepEqual(after.computed, { attended: 1 - layer, passed: 2 - layer });
      for (const number of [0, 1]) near(after.maps(number), [...alone.maps(number)], 1e-6);
      ids.forEach((_, t) => near(after.logits(t), [...alone.logits(t)], 1e-6));
      before.run(ids.slice(0, 3), all);
      after.run(ids.slice(0, 3), off, true, before);
      before.run(ids, all);
      after.run(ids, off, true, before);
      ids.forEach((_, t) => near(after.logits(t), [...alone.logits(t)], 1e-6));
    }
  }
});

test("without positions equal tokens are alike in the first layer", async () => {
  const { network, packed } = cases[0];
  const pass = new Pass(await load(network, packed));
  pass.run([3, 3, 3, 3], new Float32Array(4).fill(1), false);
  const last = pass.maps(0).slice(12, 16);
  near(last, [0.25, 0.25, 0.25, 0.25], 1e-6);
  pass.run([3, 3, 3, 3], new Float32Array(4).fill(1));
  assert.ok(Math.max(...pass.maps(0).slice(12, 16)) > 0.26);
});

/** Mean Jensen-Shannon distance of a head's rows, from maps that stand alone. @param {Float32Array} one @param {Float32Array} other @param {number} count */
function moved(one, other, count) {
  let sum = 0;
  for (let t = 0; t < count; t++) {
    const [p, q] = [one, other].map((map) => [...map.slice(t * count, (t + 1) * count)]);
    const against = (/** @type {number[]} */ row) => row.reduce((all, w, s) => (w ? all + w * Math.log2((2 * w) / (p[s] + q[s])) : all), 0);
    sum += Math.sqrt(Math.max(0, (against(p) + against(q)) / 2));
  }
  return sum / count;
}

test("a long text, then a short one, then heads off: each head has moved as far as its own maps say", async () => {
  for (const code of ["", kernel]) {
    for (const { network, packed, ids } of cases) {
      const { heads, width, layers, vocabulary = 9 } = network;
      const model = { ...await load(network, packed, code), positions: Float32Array.from({ length: 150 * width }, (_, i) => Math.sin(i)) };
      const all = new Float32Array(layers * heads).fill(1);
      const off = all.slice();
      off[heads] = 0; // the first head of the second layer
      const [before, after] = [new Pass(model), new Pass(model)];
      before.run(Array.from({ length: 130 }, (_, n) => n % vocabulary), all);
      before.run(ids, all);
      after.run(ids, off, true, before);
      assert.deepEqual([...changes(before, after)], [0, 0, 0, 0], "no layer reads what was switched off in the last one");
      off[0] = 0;
      after.run(ids, off, true, before);
      const size = ids.length ** 2;
      const wanted = Array.from({ length: layers * heads }, (_, n) => {
        const [one, other] = [before, after].map((pass) => pass.maps(Math.trunc(n / heads)).slice((n % heads) * size, (n % heads + 1) * size));
        return moved(one, other, ids.length);
      });
      assert.ok(wanted[heads] > 0.001);
      near(changes(before, after), wanted, 1e-6);
    }
  }
});
