import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { sums } from "./fromwhere.js";
import { load } from "./model.js";
import { Pass } from "./network.js";
import { opened } from "./opened.js";

const { origins: cases, kernel, network } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

/** @param {any} terms @param {"query" | "key"} side @param {number} at @param {number} other */
function adds(terms, side, at, other) {
  const { S, width, scale, split } = terms;
  const { names, parts } = split[side];
  const rows = side === "query" ? terms.keys : terms.queries;
  const vector = rows.subarray(other * width, (other + 1) * width);
  return sums({ names, part: (n, t) => parts.subarray((n * S + t) * width, (n * S + t + 1) * width) }, at, vector, scale);
}

test("a score's sources are those of attnviz sources", async () => {
  for (const { network: made, packed, ids, asked } of cases) {
    const model = await load(made, packed, kernel);
    const pass = new Pass(model);
    pass.run(ids, new Float32Array(made.layers * made.heads).fill(1));
    for (const { head, query, key, score, by } of asked) {
      const terms = opened(pass, head);
      for (const [side, at, other] of [["query", query, key], ["key", key, query]]) {
        const found = Object.fromEntries(adds(terms, side, at, other).map(({ name, value }) => [name, value]));
        for (const [name, value] of Object.entries(by[side])) {
          assert.ok(Math.abs(found[name] - value) <= 1e-4, `${head} ${side} ${name}: ${found[name]}, not ${value}`);
        }
        assert.deepEqual(Object.keys(found).sort(), Object.keys(by[side]).sort());
        const total = Object.values(found).reduce((sum, one) => sum + one, 0);
        assert.ok(Math.abs(total - score) <= 1e-4 * Math.max(1, Math.abs(score)), `${total}, not ${score}`);
      }
    }
  }
});

test("sources add up in a pass with heads off and without positions, taken over or computed", async () => {
  for (const { network: made, packed, ids, gates } of network) {
    const model = await load(made, packed);
    const [all, off] = [new Float32Array(gates.length).fill(1), Float32Array.from(gates)];
    const [before, after] = [new Pass(model), new Pass(model)];
    for (const places of [true, false]) {
      before.run(ids, all);
      after.run(ids, off, places, before);
      for (let head = 0; head < gates.length; head++) {
        const terms = opened(after, head);
        const { queries, keys, width, S, scale } = terms;
        for (let t = 0; t < S; t++) {
          let score = 0;
          for (let i = 0; i < width; i++) score += scale * queries[t * width + i] * keys[i];
          for (const side of ["query", "key"]) {
            const [at, other] = side === "query" ? [t, 0] : [0, t];
            const found = adds(terms, side, at, other);
            const total = found.reduce((sum, { value }) => sum + value, 0);
            assert.ok(Math.abs(total - score) <= 1e-4 * Math.max(1, Math.abs(score)), `${head} ${t}: ${total}, not ${score}`);
            const gone = found.find(({ name }) => name === "0.1");
            if (gone) assert.equal(Math.abs(gone.value), 0, "a head that is off writes nothing");
          }
        }
      }
    }
  }
});

test("a text that is too long has no sources", async () => {
  const { network: made, packed } = cases[0];
  const pass = new Pass(await load(made, packed, kernel));
  const [ids, last] = [new Array(made.maxTokens).fill(5), made.layers * made.heads - 1];
  pass.run(ids, new Float32Array(last + 1).fill(1));
  const numbers = 2 * (4 + (made.layers - 1) * (made.heads + 1)) * ids.length * (made.width / made.heads);
  assert.equal(opened(pass, last).split === null, numbers > 2 ** 21);
});
