import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { chance } from "./chance.js";

const { chance: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

test("numbers are those of mulberry32", () => {
  for (const [seed, n, wanted] of cases) assert.equal(chance(seed, n), wanted, `${seed}, ${n}`);
});
