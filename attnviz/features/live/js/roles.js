import { fixed, wholePercent } from "./numbers.js";

/** @typedef {import("./types.js").RoleRules} RoleRules */
/** @typedef {import("./types.js").Measured} Measured */

/** Above it, uniform attention puts all of its weight on the targets, up to rounding. */
const ALL = 1 - 1e-6;
/** The scores of docs/roles.md that roles of a text rest on. */
const TARGETS = ["previous", "next", "self", "first", "separator", "punctuation", "local", "duplicate", "induction"];
const [FIRST, SEPARATOR, PUNCTUATION, DUPLICATE] = [3, 4, 5, 7];
const SCORES = [...TARGETS, "duplicate_no_sink", "induction_no_sink", "entropy_share"];
const [NO_SINK, ENTROPY] = [TARGETS.length, SCORES.length - 1];

/**
 * The roles of every head on a text, as `attnviz heads` measures them.
 * @param {object} given
 * @param {number[]} given.ids
 * @param {(head: number) => { weights: Float32Array, room: number, at: number }} given.map where the rows of a head's weights lie
 * @param {number} given.heads of all layers
 * @param {boolean} given.causal
 * @param {{ special: Set<number>, separators: Set<number>, marks: Set<number> }} given.known ids
 * @param {RoleRules} given.rules
 * @returns {Measured[][]} for each head what it does, then where it rests
 */
export function rolesOf({ ids, map, heads, causal, known, rules }) {
  const rows = ids.map((_, t) => place(ids, t, causal, known, rules.window));
  const uniform = rows.map((row) => scored(row, () => 1 / row.choices, rules.rest));
  return Array.from({ length: heads }, (_, head) => {
    const { weights, room, at } = map(head);
    const sums = SCORES.map(() => ({ value: 0, chance: 0, rows: 0, shares: TARGETS.map(() => 0) }));
    let counted = 0;
    rows.forEach((row, t) => {
      if (!row.counts) return;
      counted++;
      const found = scored(row, (s) => weights[at + t * room + s], rules.rest);
      const chance = uniform[t];
      SCORES.forEach((_, score) => {
        const target = targetOf(score);
        if (score !== ENTROPY && !(chance.values[score] > 0 && chance.values[score] < ALL)) return;
        if (score >= NO_SINK && score < ENTROPY && (found.rest < rules.rest || chance.rest < rules.rest)) return;
        if ((target === FIRST && t < 2) || (target === SEPARATOR && row.separator) || (target === PUNCTUATION && row.mark)) return;
        const sum = sums[score];
        sum.rows++;
        sum.value += found.values[score];
        sum.chance += chance.values[score];
        const over = score >= NO_SINK ? Math.max(found.rest, rules.rest) : 1;
        for (let other = 0; other < TARGETS.length; other++) {
          if (score < NO_SINK || (other !== FIRST && other !== SEPARATOR)) sum.shares[other] += found.values[other] / over;
        }
      });
    });
    return assigned(sums, counted, rules);
  });
}

/** The number of the targets of a score. @param {number} score */
function targetOf(score) {
  return score >= NO_SINK && score < ENTROPY ? DUPLICATE + score - NO_SINK : score;
}

/**
 * What of a row does not depend on the head: the keys of each target.
 * @param {number[]} ids
 * @param {number} t
 * @param {boolean} causal
 * @param {{ special: Set<number>, separators: Set<number>, marks: Set<number> }} known
 * @param {number} window
 */
function place(ids, t, causal, { special, separators, marks }, window) {
  const choices = causal ? t + 1 : ids.length;
  const keys = Array.from({ length: choices }, (_, s) => s);
  const plain = keys.map((s) => s > 0 && !special.has(ids[s]));
  /** @param {number} s */
  const only = (s) => (s >= 0 && s < choices && plain[s] ? [s] : []);
  return {
    choices,
    counts: !special.has(ids[t]) && choices >= 2,
    separator: t > 0 && separators.has(ids[t]),
    mark: marks.has(ids[t]),
    sink: keys.filter((s) => !plain[s]),
    targets: [
      only(t - 1), only(t + 1), only(t), [0],
      keys.filter((s) => s > 0 && separators.has(ids[s])),
      keys.filter((s) => plain[s] && marks.has(ids[s])),
      keys.filter((s) => plain[s] && Math.abs(s - t) <= window),
      keys.filter((s) => plain[s] && s <= t - 2 && ids[s] === ids[t]),
      keys.filter((s) => plain[s] && s <= t - 2 && ids[s - 1] === ids[t]),
    ],
  };
}

/**
 * Every score of a row with some weights.
 * @param {ReturnType<typeof place>} row
 * @param {(key: number) => number} weight
 * @param {number} least of the weight that is to be off the sink
 */
function scored({ choices, sink, targets }, weight, least) {
  /** @param {number[]} keys */
  const on = (keys) => keys.reduce((sum, s) => sum + weight(s), 0);
  const values = targets.map(on);
  const rest = 1 - on(sink);
  let entropy = 0;
  for (let s = 0; s < choices; s++) {
    const share = weight(s);
    if (share > 0) entropy -= share * Math.log2(share);
  }
  const off = [values[DUPLICATE], values[DUPLICATE + 1]].map((value) => value / Math.max(rest, least));
  return { rest, values: [...values, ...off, choices > 1 ? entropy / Math.log2(choices) : 0] };
}

/**
 * @param {{ value: number, chance: number, rows: number, shares: number[] }[]} sums of every score
 * @param {number} counted
 * @param {RoleRules} rules
 * @returns {Measured[]}
 */
function assigned(sums, counted, { roles, least, few }) {
  /** @type {Map<string, Measured>} */
  const found = new Map();
  const excused = new Map(roles.map(({ name, unless }) => [name, unless]));
  for (const { name, evidence, unless, rests } of roles) {
    if (unless.some((other) => found.has(other))) continue;
    for (const [score, mean, lift] of evidence) {
      const sum = sums[SCORES.indexOf(score)];
      if (!sum || sum.rows < least) continue;
      const value = sum.value / sum.rows;
      if (value < mean || (sum.chance > 0 ? sum.value / sum.chance : 0) < lift) continue;
      const rivals = score === "entropy_share" ? [] : TARGETS.flatMap((other, n) => (excused.has(other)
        && other !== name && !unless.includes(other) && !excused.get(other)?.includes(name) ? [sum.shares[n] / sum.rows] : []));
      if (Math.max(-Infinity, ...rivals) >= value) continue;
      found.set(name, { name, score, mean: value, rows: sum.rows, possible: sum.rows / counted, rests });
      break;
    }
  }
  /** @param {Measured} role */
  const order = ({ rests, rows }) => [Number(rests), Number(rows < few), rests ? -rows : rows];
  return [...found.values()].sort((a, b) => {
    const [x, y] = [order(a), order(b)];
    return x[0] - y[0] || x[1] - y[1] || x[2] - y[2];
  });
}

/** A score for people. @param {number} mean */
function usual(mean) {
  return mean !== 0 && mean < 0.001 ? "<0.001" : fixed(mean, mean < 0.0995 ? 3 : 2);
}

/** @param {Measured} role @param {(mean: number) => string} number */
function phrase({ name, score, mean }, number) {
  if (score === "entropy_share") return `${name} ${wholePercent(mean)} of the maximum`;
  return `${name} ${number(mean)}${score.endsWith("_no_sink") ? " off the sink" : ""}`;
}

/** What a head does and where it rests. @param {Measured[]} roles @param {(mean: number) => string} [number] */
export function said(roles, number = usual) {
  const rests = roles.filter(({ rests: resting }) => resting);
  const does = roles.filter(({ rests: resting }) => !resting)
    .map((role) => `${phrase(role, number)}${role.possible >= 0.9 ? "" : ` where possible (${wholePercent(role.possible)} of rows)`}`);
  if (does.length) return [`does ${does.join(", ")}`, ...rests.map(({ name }) => (name === "diffuse" ? name : `sink: ${name}`))].join(", ");
  return rests.map((role) => (role.name === "diffuse" ? phrase(role, number) : `sink: ${phrase(role, number)}`)).join(", ") || "no role";
}
