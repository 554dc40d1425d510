import { byId, fill, make } from "./dom.js";
import { probability } from "./digits.js";
import { label, named } from "./headmap.js";
import { changesOf, get } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */

/** @param {number} share @param {string} name */
function bar(share, name) {
  const filled = make("span", { class: name });
  filled.style.width = `${100 * share}%`;
  return filled;
}

/** Words that stand beside the text. */
const NEXT = 3;

/** The likeliest words as the page is, beside what was typed. @param {Answer} answer @param {boolean} causal */
export function drawNext(answer, causal) {
  const { ids, at, words, after } = answer;
  byId("next").hidden = !words;
  if (!words) return;
  const share = (/** @type {import("./types.js").Word} */ word) => (after ? word.after : word.before);
  fill(byId("next-said"), !causal ? `in the place of ${named(answer, at)}` : at === ids.length - 1 ? "what comes next" : `after ${named(answer, at)}`);
  fill(byId("next-words"), ...[...words].sort((a, b) => share(b) - share(a)).slice(0, NEXT).map((word) => {
    const line = make("li", {}, make("span", {}, label(word.id)), probability(share(word)));
    line.style.setProperty("--share", String(share(word)));
    return line;
  }));
}

/** The likeliest words at a position, before and after. @param {Answer} answer @param {boolean} causal */
export function drawWords({ ids, at, words, after }, causal) {
  byId("words-part").hidden = !words;
  if (!words) return;
  byId("words").classList.toggle("both", Boolean(after));
  fill(byId("words-title"), causal ? "Next token" : "Token here");
  fill(byId("words-said"), causal
    ? `what the model expects after ${label(ids[at])} (token ${at})`
    : `what the model puts in the place of ${label(ids[at])} (token ${at}); give it [MASK] to guess`);
  const body = /** @type {HTMLElement} */ (byId("words").querySelector("tbody"));
  const actual = causal ? ids[at + 1] : undefined;
  const changed = changesOf(get());
  byId("words-legend").hidden = !after;
  fill(byId("words-changed"), `with ${changed}`);
  fill(body, ...words.map((word) => {
    const name = make("th", { scope: "row" }, label(word.id));
    if (word.id === actual) name.append(make("span", { class: "actual", title: "the token that stands there" }, " ✓"));
    const bars = [bar(word.before, "bar"), ...(after ? [bar(word.after, "bar then")] : [])];
    const figures = after
      ? [make("span", { class: "was" }, probability(word.before)), make("span", { "aria-hidden": "true" }, " → "), make("b", {}, probability(word.after))]
      : [make("b", {}, probability(word.before))];
    return make("tr", {}, name, make("td", { "aria-hidden": "true" }, make("span", { class: "track" }, ...bars)), make("td", { class: "share" }, ...figures));
  }));
}
