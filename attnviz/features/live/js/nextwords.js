import { byId, fill, make } from "./dom.js";
import { label } from "./headmap.js";

/** @typedef {import("./types.js").Answer} Answer */

/** @param {number} share */
function percent(share) {
  const value = 100 * share;
  return value < 0.1 ? "<0.1 %" : `${value.toFixed(value < 10 ? 1 : 0)} %`;
}

/** @param {number} share */
function bar(share) {
  const filled = make("span", { class: "bar", "aria-hidden": "true" });
  filled.style.width = `${100 * share}%`;
  return make("td", {}, make("span", { class: "meter" }, make("span", { class: "track" }, filled), make("span", { class: "share" }, percent(share))));
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
  fill(body, ...words.map((word) => {
    const name = make("th", { scope: "row" }, label(word.id));
    if (word.id === actual) name.append(make("span", { class: "actual", title: "the token that stands there" }, " ✓"));
    return make("tr", {}, name, bar(word.before), ...(after ? [bar(word.after)] : []));
  }));
}
