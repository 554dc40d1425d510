/** @typedef {import("./types.js").WordPieces} WordPieces */

const SPACE = /[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

/** Code points as first, last, first, last. @param {number[]} ranges */
function oneOf(ranges) {
  let inside = "";
  for (let i = 0; i < ranges.length; i += 2) inside += `\\u{${ranges[i].toString(16)}}-\\u{${ranges[i + 1].toString(16)}}`;
  return new RegExp(inside ? `[${inside}]` : "[]", "u");
}

/** Whether a character is a Chinese one, by the blocks that BERT takes for it. @param {number} code */
function isChinese(code) {
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf)
    || (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f)
    || (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf)
    || (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

/**
 * WordPiece (Wu et al. 2016, arXiv:1609.08144), with BERT's way of cleaning and splitting.
 * @param {WordPieces} vocabulary
 * @returns {(text: string) => number[]}
 */
export function wordPieces({ tokens, unknown, prefix, longest, clean, chinese, accents, lower, dropped, signs }) {
  const [gone, sign] = [oneOf(dropped), oneOf(signs)];
  const ids = new Map(tokens.map((token, id) => [token, id]));

  /** @param {string} text */
  function normalized(text) {
    let out = "";
    for (const char of text) {
      const code = /** @type {number} */ (char.codePointAt(0));
      if (clean && SPACE.test(char)) out += " ";
      else if (clean && gone.test(char)) continue;
      else out += chinese && isChinese(code) ? ` ${char} ` : char;
    }
    if (accents) out = Array.from(out.normalize("NFD"), (char) => (gone.test(char) ? "" : char)).join("");
    // one by one, for JavaScript writes the last sigma of a word otherwise
    return lower ? Array.from(out, (char) => char.toLowerCase()).join("") : out;
  }

  /** @param {string} text */
  function words(text) {
    /** @type {string[]} */
    const found = [];
    let word = "";
    const close = () => {
      if (word) found.push(word);
      word = "";
    };
    for (const char of text) {
      if (SPACE.test(char)) close();
      else if (sign.test(char)) {
        close();
        found.push(char);
      } else word += char;
    }
    close();
    return found;
  }

  /** The longest pieces from the left. @param {string} word */
  function pieces(word) {
    const chars = [...word];
    if (chars.length > longest) return [unknown];
    const found = [];
    for (let start = 0; start < chars.length;) {
      let end = chars.length;
      let id;
      for (; end > start; end--) {
        id = ids.get((start ? prefix : "") + chars.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return [unknown];
      found.push(id);
      start = end;
    }
    return found;
  }

  return (text) => words(normalized(text)).flatMap(pieces);
}
