import { changes } from "./changes.js";
import { best, chance, likeliest, shares } from "./chance.js";
import { isFast } from "./kernel.js";
import { load } from "./model.js";
import { Pass } from "./network.js";
import { opened } from "./opened.js";
import { norm, passage, scoresOf } from "./passage.js";
import { rolesOf } from "./roles.js";
import { tokenizer } from "./tokenizer.js";
import { spelled } from "./bytepairs.js";

/** @typedef {import("./types.js").Ask} Ask */
/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Network} Network */

/** Predictions that are named. */
const TOP = 6;
/** Of each pass, where there are two. */
const BOTH = 4;

/**
 * What answers questions about texts with a network.
 * @param {Network} network
 * @param {string} packed
 * @param {string} kernel
 */
async function answering(network, packed, kernel) {
  const model = await load(network, packed, kernel);
  const encode = tokenizer(network.vocabulary);
  const [before, after] = [new Pass(model), new Pass(model)];
  const all = new Float32Array(model.layers.length * model.heads).fill(1);
  const { mask, after: ending } = network.vocabulary;

  const known = { special: new Set(network.vocabulary.special), separators: new Set(network.vocabulary.separators), marks: new Set(network.vocabulary.marks) };
  /** Of the pass with all heads on. */
  const roles = () => rolesOf({
    ids: before.ids, heads: all.length, causal: model.causal, known, rules: network.rules,
    map: (head) => ({ weights: before.weights[Math.trunc(head / model.heads)], room: before.room, at: (head % model.heads) * before.room * before.room }),
  });

  /** @param {Ask} ask @returns {Answer | null} null for no tokens at all */
  return (ask) => {
    const start = performance.now();
    const gates = all.slice();
    for (const head of ask.off) gates[head] = 0;
    const whole = encode(ask.text);
    const ids = whole.slice(0, network.maxTokens);
    if (whole.length > ids.length && ending.length) ids.splice(-ending.length, ending.length, ...ending);
    if (!ids.length) return null;
    const other = ask.other === null ? [] : encode(ask.other);
    const changed = other.length === ids.length;
    const gated = ask.off.length > 0 || !ask.places || changed || ask.bug !== "";
    const run = () => {
      before.run(ids, all);
      if (gated) after.run(changed ? other : ids, gates, ask.places, before, ask.bug);
    };
    run();
    const [first, writer] = [ids.length, gated ? after : before];
    for (let n = 0; n < ask.write && ids.length < network.maxTokens; n++) {
      const logits = writer.logits(ids.length - 1);
      if (!logits) break;
      ids.push(drawn(logits, ask, chance(ask.seed, ids.length)));
      run();
    }
    const masked = mask === null ? -1 : ids.indexOf(mask);
    const usual = network.causal || masked < 0 ? ids.length - 1 : masked;
    const at = ask.write || ask.at === null || ask.at >= ids.length ? usual : ask.at;
    const layers = model.layers.map((_, number) => number);
    return {
      turn: ask.turn,
      asked: ask.asked,
      roles: ask.roles ? roles() : null,
      ids: [...ids],
      idsAfter: gated ? [...after.ids] : null,
      cut: whole.length - first,
      at,
      added: network.vocabulary.kind === "bytepairs" ? spelled(ids.slice(first).map((id) => network.vocabulary.tokens[id])) : "",
      before: layers.map((number) => before.maps(number)),
      after: gated ? layers.map((number) => after.maps(number)) : null,
      changes: gated ? changes(before, after) : null,
      opened: ask.opened === null ? "" : `${Math.trunc(ask.opened / model.heads)}.${ask.opened % model.heads}`,
      termsBefore: ask.opened === null ? null : opened(before, ask.opened),
      termsAfter: ask.opened === null || !gated || ask.bug ? null : opened(after, ask.opened),
      scoresBefore: scoresOf(before, ask.head, at),
      scoresAfter: gated && !ask.bug ? scoresOf(after, ask.head, at) : null,
      scale: model.layers[Math.trunc(ask.head / model.heads)].scale,
      passage: passage(writer, at),
      entering: norm(writer.states[0], model.width, at),
      words: predictions(before.logits(at), gated ? after.logits(at) : null),
      milliseconds: performance.now() - start,
    };
  };
}

/**
 * The likeliest words with and without the heads that are off.
 * @param {Float32Array | null} before
 * @param {Float32Array | null} after
 */
function predictions(before, after) {
  if (!before) return null;
  const [first, second] = [shares(before), after && shares(after)];
  const ids = new Set(second ? [...best(first, BOTH), ...best(second, BOTH)] : best(first, TOP));
  return [...ids].map((id) => ({ id, before: first[id], after: (second || first)[id] }));
}

/**
 * A word by its probability; temperature 0 takes the likeliest.
 * @param {Float32Array} logits
 * @param {Ask} ask
 * @param {number} share from 0 to 1, of all the probability that lies before what is drawn
 */
function drawn(logits, { temperature, topK, topP }, share) {
  if (!temperature) return best(logits, 1)[0];
  const found = likeliest(shares(logits.map((logit) => logit / temperature)), topK, topP);
  let left = share;
  for (let id = 0; id < found.length; id++) if ((left -= found[id]) <= 0) return id;
  return best(found, 1)[0];
}

/** @type {((ask: Ask) => Answer | null) | null} */
let answer = null;

addEventListener("message", async ({ data }) => {
  try {
    if (data.network) {
      const start = performance.now();
      answer = await answering(data.network, data.packed, data.kernel);
      postMessage({ ready: performance.now() - start, fast: isFast() });
    } else if (answer) {
      const found = answer(data);
      const buffers = found ? [...found.before, ...(found.after || [])].map(({ buffer }) => buffer) : [];
      postMessage({ answer: found || { turn: data.turn, ids: [] } }, { transfer: buffers });
    }
  } catch (error) {
    postMessage({ failed: String(error) });
  }
});
