import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { spelled } from "./bytepairs.js";
import { tokenizer } from "./tokenizer.js";

const { tokenizer: cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

test("texts become the ids that the tokenizers library makes", () => {
  for (const { name, vocabulary, texts } of cases) {
    const encode = tokenizer(vocabulary);
    for (const [text, ids] of texts) assert.deepEqual(encode(text), ids, `${name}: ${text}`);
  }
});

test("byte pairs spell the text that they came from", () => {
  const { vocabulary, texts } = cases.find((one) => one.vocabulary.kind === "bytepairs");
  const special = new Set(vocabulary.special);
  for (const [text, ids] of texts) {
    if (!ids.some((id) => special.has(id))) assert.equal(spelled(ids.map((id) => vocabulary.tokens[id])), text);
  }
});
