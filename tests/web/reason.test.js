import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { reasonOf } from "./reason.js";

const { reason: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

test("a weight taken apart is the weight", () => {
  for (const { terms, bias, weights, dots } of cases) {
    const full = { ...terms, bias: bias && ((r, c) => bias[r][c]), allowed: (r, c) => c <= r, written: false, turned: null, slack: null };
    for (let r = 0; r < terms.S; r++) {
      for (let c = 0; c < terms.S; c++) {
        const found = reasonOf(full, r, c);
        assert.ok(Math.abs(found.weight - weights[r][c]) < 1e-12, `${r}, ${c}: ${found.weight}, not ${weights[r][c]}`);
        assert.ok(Math.abs(found.dot - dots[r][c]) < 1e-12);
        assert.equal(found.row[c] === -Infinity, c > r);
      }
    }
  }
});

test("q·k is off by at most what its factors are", () => {
  const { terms } = cases[0];
  const slack = { q: [0.1, 0, 0, 0], k: [0, 0.2, 0, 0] };
  const { off } = reasonOf({ ...terms, bias: null, allowed: () => true, slack }, 1, 2);
  const wanted = 0.1 * Math.abs(terms.keys[8]) + 0.2 * Math.abs(terms.queries[5]);
  assert.ok(Math.abs(off - wanted) < 1e-12);
});

test("a row without any key has no weight", () => {
  const { weight, total } = reasonOf({ ...cases[0].terms, bias: null, allowed: () => false, slack: null }, 0, 0);
  assert.deepEqual([weight, total], [0, 0]);
});
