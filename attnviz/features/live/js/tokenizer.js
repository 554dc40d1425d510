import { bytePairs } from "./bytepairs.js";
import { wordPieces } from "./wordpieces.js";

/** @typedef {import("./types.js").Vocabulary} Vocabulary */

/** @param {string} text */
function quoted(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/**
 * Text to ids, as the model's tokenizer makes them.
 * @param {Vocabulary} vocabulary
 * @returns {(text: string) => number[]}
 */
export function tokenizer(vocabulary) {
  const { whole, before, after } = vocabulary;
  const split = vocabulary.kind === "bytepairs" ? bytePairs(vocabulary) : wordPieces(vocabulary);
  const ids = new Map(whole.map(({ text, id }) => [text, id]));
  const names = [...whole].sort((a, b) => b.text.length - a.text.length)
    .map(({ text, left, right }) => `${left ? "\\s*" : ""}(?:${quoted(text)})${right ? "\\s*" : ""}`);
  const marks = names.length ? new RegExp(names.join("|"), "gu") : null;

  return (text) => {
    const found = [...before];
    let at = 0;
    for (const match of marks ? text.matchAll(marks) : []) {
      found.push(...split(text.slice(at, match.index)));
      const id = ids.get(match[0]) ?? ids.get(match[0].trim());
      if (id !== undefined) found.push(id);
      at = match.index + match[0].length;
    }
    found.push(...split(text.slice(at)), ...after);
    return found;
  };
}
