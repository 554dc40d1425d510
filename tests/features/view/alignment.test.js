import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { aligned, refusal } from "./alignment.js";

const { alignment: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

test("sequences are laid side by side with the fewest edits", () => {
  for (const [one, other, edits] of cases) {
    const { pairs, same, left } = aligned(one, other);
    assert.equal(pairs.length - same + left, edits, `${one} and ${other}`);
    assert.equal(pairs.filter(([i, j]) => one[i] === other[j]).length, same);
    assert.equal(one.length + other.length - 2 * pairs.length, left);
    pairs.slice(1).forEach(([i, j], n) => assert.ok(i > pairs[n][0] && j > pairs[n][1]));
  }
});

test("sequences of other lengths with little in common are refused", () => {
  assert.equal(refusal({ pairs: [], same: 2, left: 1 }, 5), "only 2 of 5 are the same");
  assert.equal(refusal({ pairs: [], same: 3, left: 1 }, 5), "");
  assert.equal(refusal({ pairs: [], same: 0, left: 0 }, 5), "");
});
