import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { figure, filed, fixed, interval, known, knownChange, percent, plain, plural, shown, signed, signedText, signedWeight, thousands, times, upward, wholePercent, withError } from "./numbers.js";

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

test("a minus is a minus sign, in every way of writing a number", () => {
  const below = [fixed(-0.5, 2), shown(-0.31), shown(-0.00001), signedText(-5.7), signedWeight(-0.25), figure(-0.0123), figure(-12.4, true), percent(-0.123), wholePercent(-0.4), signed(-2.5, 0.01), signed(-Infinity), interval(-0.2, -0.1), knownChange(-0.25, -0.25)];
  for (const text of below) {
    assert.ok(text.includes("\u2212"), text);
    assert.ok(!text.includes("-"), text);
  }
  assert.equal(filed(-0.25), "-0.25", "but in files");
});

test("thousands have commas", () => {
  for (const [value, wanted] of [[0, "0"], [999, "999"], [1000, "1,000"], [1234567, "1,234,567"], [-12345, "-12,345"]]) assert.equal(thousands(value), wanted);
});

test("nothing has no sign", () => {
  for (const text of [fixed(-0.001, 2), signed(-0.0001), signedText(-0.00001), figure(-0.00001, true), wholePercent(-0.001), plain(0)]) assert.match(text, /^0(\.0+)?( %)?$/);
});

test("digits are those that count", () => {
  assert.deepEqual([0.8567, 0.0567, 0.00567, 0.00001, 0].map(shown), ["0.86", "0.057", "0.0057", "<0.0001", "0"]);
  assert.deepEqual([0.9312, 0.0823, 0.0003, 0, 1].map(percent), ["93 %", "8.2 %", "<0.1 %", "0 %", "100 %"]);
  assert.deepEqual([0.9312, 0.0823, 0.0003, 0].map(wholePercent), ["93 %", "8 %", "<1 %", "0 %"]);
  assert.deepEqual([31.4, 3.14, 0.314, 0.0314, 0.000314].map((value) => figure(value)), ["31", "3.1", "0.31", "0.031", "0.0003"]);
  assert.deepEqual([12.34, 1.234, 0.1234, 0.01234].map(signedText), ["+12.3", "+1.23", "+0.12", "+0.012"]);
  assert.deepEqual([0.00384, 0.000384, -0.00006].map(signedText), ["+0.0038", "+0.00038", "−0.00006"]);
  assert.deepEqual([0.5, 1.25, 12.5].map(times), ["×0.50", "×1.3", "×13"]);
  assert.deepEqual([signed(1.23456, 0.04), plain(0.001, 0.04), plain(0.00001)], ["+1.2", "<0.1", "1.0e−5"]);
  assert.equal(interval(0.1, null), "");
  assert.deepEqual([plural(1, "query"), plural(1024, "query")], ["1 query", "1,024 queries"]);
});
