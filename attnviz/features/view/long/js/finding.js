import { data, queries } from "./data.js";
import { byId, fill } from "./dom.js";
import { plural, thousands } from "./numbers.js";

/** Whether tokens bring the space before them along, as those of GPT-2 do, and not those of BERT. */
const spaced = queries.some((text) => text.startsWith("·"));

/** A token as it stands in running text. @param {string} text */
export function read(text) {
  if (spaced) return text.replaceAll("·", " ");
  return text.startsWith("##") ? text.slice(2) : ` ${text}`;
}

/** The text, and where each query begins in it. */
function written() {
  /** @type {number[]} */
  const starts = [];
  let text = "";
  for (const one of queries) {
    starts.push(text.length);
    text += read(one).toLowerCase();
  }
  return { text, starts };
}

/** The query that a letter is of. @param {number[]} starts @param {number} at */
function holding(starts, at) {
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Positions at which a word or several begin, in order. @param {string} asked */
function places(asked) {
  const { text, starts } = written();
  const wanted = asked.trim().toLowerCase();
  const found = new Set();
  for (let at = wanted ? text.indexOf(wanted) : -1; at >= 0; at = text.indexOf(wanted, at + 1)) found.add(holding(starts, at));
  return [...found];
}

/** The search for words, and the way to a position. @param {(query: number) => void} jump */
export function startFinding(jump) {
  const field = /** @type {HTMLInputElement} */ (byId("find"));
  const go = /** @type {HTMLInputElement} */ (byId("go"));
  const [from, to] = [data.part[0], data.part[1] - 1];
  /** @type {number[]} */
  let found = [];
  let here = -1;
  const tell = () => fill(byId("found"), field.value.trim() ? `${here < 0 ? plural(found.length, "place") : `${thousands(here + 1)} of ${plural(found.length, "place")}`}${found.length ? "" : "; spelled as in the text?"}` : "");
  const step = (/** @type {number} */ by) => {
    if (!found.length) return;
    here = here < 0 && by < 0 ? found.length - 1 : (here + by + found.length) % found.length;
    go.value = String(found[here]);
    jump(found[here]);
    tell();
  };
  field.addEventListener("input", () => {
    found = places(field.value).filter((at) => at >= from && at <= to);
    here = -1;
    tell();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  });
  byId("find-before").addEventListener("click", () => step(-1));
  byId("find-next").addEventListener("click", () => step(1));
  go.min = String(from);
  go.max = String(to);
  const reach = () => {
    const at = Math.round(Number(go.value));
    if (go.value === "" || !(at >= from && at <= to)) return fill(byId("found"), `queries are ${thousands(from)} to ${thousands(to)}`);
    jump(at);
    return undefined;
  };
  go.addEventListener("keydown", (event) => { if (event.key === "Enter") reach(); });
  byId("go-to").addEventListener("click", reach);
}
