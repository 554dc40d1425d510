/** @typedef {import("./types.js").BytePairs} BytePairs */

/** Unicode's White_Space, which is not JavaScript's \s. */
const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
/** GPT-2's pieces (Radford et al. 2019): endings, words, numbers, signs, white space. */
const PIECES = new RegExp(
  `'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);

/** The sign that stands for each byte: printable ones for themselves, the others from U+0100 on. @returns {string[]} */
function signs() {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
    return String.fromCodePoint(printable ? byte : next++);
  });
}

/** The text that pieces spell. @param {string[]} pieces */
export function spelled(pieces) {
  const bytes = new Map(signs().map((sign, byte) => [sign, byte]));
  const found = pieces.flatMap((piece) => Array.from(piece, (sign) => bytes.get(sign) ?? 63));
  return new TextDecoder().decode(new Uint8Array(found));
}

/**
 * Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909), as GPT-2 has it.
 * @param {BytePairs} vocabulary
 * @returns {(text: string) => number[]}
 */
export function bytePairs({ tokens, merges, prefixSpace }) {
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const size = tokens.length;
  /** Pair of ids, as one number, to its rank and what it becomes. @type {Map<number, [number, number]>} */
  const ranks = new Map();
  for (let i = 0; i < merges.length; i += 3) {
    ranks.set(merges[i] * size + merges[i + 1], [i, merges[i + 2]]);
  }
  const single = signs().map((sign) => ids.get(sign) ?? -1);
  const bytes = new TextEncoder();
  /** @type {Map<string, number[]>} */
  const known = new Map();

  /** @param {string} piece */
  function merged(piece) {
    const parts = Array.from(bytes.encode(piece), (byte) => single[byte]).filter((id) => id >= 0);
    while (parts.length > 1) {
      let [best, least, made] = [-1, Infinity, 0];
      for (let i = 0; i + 1 < parts.length; i++) {
        const found = ranks.get(parts[i] * size + parts[i + 1]);
        if (found && found[0] < least) [best, least, made] = [i, found[0], found[1]];
      }
      if (best < 0) break;
      parts.splice(best, 2, made);
    }
    return parts;
  }

  return (text) => {
    const whole = prefixSpace && text && !text.startsWith(" ") ? ` ${text}` : text;
    return (whole.match(PIECES) || []).flatMap((piece) => {
      let found = known.get(piece);
      if (!found) {
        if (known.size > 20000) known.clear();
        known.set(piece, found = merged(piece));
      }
      return found;
    });
  };
}
