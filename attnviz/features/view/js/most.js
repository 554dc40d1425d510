import { byId, fill, make } from "./dom.js";
import { plural } from "./numbers.js";
import { described, firstOf, headsOf, isLoaded, kindOf, page, several } from "./data.js";
import { get, set } from "./store.js";
import { entry, markCurrent, startRanking } from "./ranklist.js";
import { readBeside } from "./second.js";
import { axesOf } from "./panel.js";
import { changes, wholeTexts } from "./changed.js";
import { track } from "./busy.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./changed.js").Changed} Changed */

/** Whether the page was opened without saying what to show. */
let opening = page.against && !location.hash;

/** What was ranked, and the ranking once it is there. @type {{ key: string, ranked: Changed[] | null }} */
let kept = { key: "", ranked: null };

/**
 * Compute the ranking layer by layer, so that the page stays at hand.
 * @param {[State, State]} states
 * @param {string} key
 */
async function rank(states, key) {
  /** @type {Changed[]} */
  const found = [];
  for (const some of changes(states)) {
    found.push(...some);
    await new Promise((done) => setTimeout(done));
    if (kept.key !== key) return;
  }
  found.sort((a, b) => b.value - a.value);
  kept = { key, ranked: found };
  draw(get(), states, found);
  // a page of two runs opens on what changed most
  const [{ head } = { head: null }] = found;
  if (opening && head) set({ head: head.id, on: [head.id] });
  opening = false;
}

/** @param {[State, State]} states @param {Changed} changed @param {number} top */
function entryOf(states, { head, value, said, row, largest, gained, lost }, top) {
  const [i, j] = [0, 1].map((n) => axesOf(states[n]).queries.named[row[n]]);
  const where = i === j ? i : `${i} / ${j}`;
  const roles = [...gained.map((name) => `+${name}`), ...lost.map((name) => `−${name}`)].join(" ");
  const title = `mean distance ${said}, largest ${largest} at ${where}${roles ? `; roles ${roles}` : ""}; ${described(head)}`;
  const most = `${roles ? `${roles}; ` : ""}${largest} at `;
  const label = `${head.name} ${said} ${most}${where}: mean and largest distance, ${described(head)}`;
  return entry(head, top > 0 ? value / top : 0, title, label, ` ${said} `, make("span", { class: "soft" }, most, make("bdi", {}, where)));
}

/** @param {State[]} states @param {Changed[]} found */
function sentence([state], found) {
  const [first] = found;
  const unit = state.words ? "word" : "token";
  if (!first) return "No head is on both sides.";
  const measure = `the mean Jensen-Shannon distance of a head's rows (0: the same weights, 1: none in common) over ${plural(first.rows, unit)} of the whole texts`;
  if (!first.low) return `No head changed by more than ${page.bits} bits can tell, ${first.said}: ${measure}.`;
  const like = found.filter(({ high }) => high >= first.low).length;
  const leader = like > 1 ? `${several(state, like)} lead that ${page.bits} bits do not tell apart` : `${first.head.title} changed most`;
  return `${leader[0].toUpperCase()}${leader.slice(1)}, by ${measure}.`;
}

/** @param {State} state @param {[State, State]} states @param {Changed[] | null} found */
function draw(state, states, found) {
  byId("most-said").textContent = found ? sentence(states, found) : "Measuring every head…";
  const top = found?.[0]?.value || 0;
  fill(byId("most-list"), ...firstOf(state, found || []).map((one) => entryOf(states, one, top)));
  markCurrent("most-list");
}

/**
 * The heads that changed most from one text or run to the other, where that is asked for.
 * @param {State} state
 * @param {import("./comparison.js").Comparison | null} comparison
 */
export function drawMost(state, comparison) {
  const able = comparison !== null && comparison.states[0].text !== comparison.states[1].text && !comparison.refused;
  byId("most-open").hidden = !able;
  byId("most-open").setAttribute("aria-expanded", String(able && state.most));
  byId("most").hidden = !able || !state.most;
  if (!comparison || !able || !state.most) return;
  const states = wholeTexts(comparison.states);
  const sides = states.map((side) => [side.text, side.kind, kindOf(side).quantity, side.words]);
  const key = JSON.stringify(sides);
  if (kept.key === key) {
    if (kept.ranked) markCurrent("most-list");
    return;
  }
  if (!states.every((side) => headsOf(side).every(({ site }) => isLoaded(site)))) return;
  kept = { key, ranked: null };
  draw(state, states, null);
  track(rank(states, key));
}

export function startMost() {
  byId("most-open").addEventListener("click", () => set({ most: !get().most }));
  startRanking("most-list", () => {
    const { head, text } = readBeside(get().beside);
    return head ? { beside: `@${text}` } : {};
  });
}
