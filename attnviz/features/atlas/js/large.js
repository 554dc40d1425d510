import { fill, byId, make } from "./dom.js";
import { cost, heads } from "./data.js";
import { figure, interval } from "./numbers.js";

/** A number, and what it is. @param {string} number @param {string} ends its interval @param {(Node | string)[]} said */
function fact(number, ends, ...said) {
  return make("div", {}, make("p", { class: "number" }, number), make("p", { class: "small" }, ...said, ends));
}

/** @param {string} name */
function link(name) {
  return make("a", { href: `#${name}` }, name);
}

/** Three numbers in large letters: heads with a role, the clearest role, the costliest head where one surely costs anything. */
export function drawLarge() {
  const named = heads.filter(({ does }) => does);
  const draws = named[0]?.stays?.of || 0;
  const sure = named.filter(({ stays }) => stays && stays.does === stays.of).length;
  const facts = [fact(`${named.length} of ${heads.length}`, draws ? `, ${sure} of them in all ${draws} draws of the texts` : "", "heads have a role")];
  /** @type {Record<string, number>} */
  const lift = {};
  for (const { name, does, scores } of named) lift[name] = (does && scores[does.score]?.mean) || 0;
  const [clearest] = [...named].sort((one, other) => lift[other.name] - lift[one.name]);
  if (clearest?.does) {
    const { low, high } = clearest.scores[clearest.does.score] || { low: null, high: null };
    facts.push(fact(figure(clearest.does.mean), interval(low, high), `${clearest.does.name}, head `, link(clearest.name)));
  }
  if (!cost) return void fill(byId("large"), ...facts);
  const ends = (cost.ends || "").replace(/^(?=[^,:;])/, " ");  // what begins with a word or a bracket stands apart
  facts.push(fact(cost.number, ends, cost.said, ...(cost.head ? [" ", link(cost.head)] : [])));
  fill(byId("large"), ...facts);
}
