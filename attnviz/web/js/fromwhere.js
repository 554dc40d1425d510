import { make } from "./dom.js";
import { signed } from "./numbers.js";

/** @typedef {import("./reason.js").Reason} Reason */
/** @typedef {import("./reason.js").Origins} Origins */
/** @typedef {import("./whypanel.js").Asked} Asked */

/** Sources of a side that are named. */
const LISTED = 6;

/** @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/**
 * What every source of one side adds to the score, the largest first.
 * @param {Origins} origins
 * @param {number} at position of the query, or of the key
 * @param {ArrayLike<number>} other the vector of the other side
 * @param {number} scale
 */
export function sums(origins, at, other, scale) {
  const found = origins.names.map(([kind, name], n) => ({ kind, name, value: scale * dot(origins.part(n, at), other) }));
  return found.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

/**
 * The bars of one side.
 * @param {string} title
 * @param {ReturnType<typeof sums>} all
 * @param {number} off how far a score can be off
 * @param {((head: string) => void) | undefined} jump
 */
function side(title, all, off, jump) {
  const most = Math.max(1e-12, ...all.map(({ value }) => Math.abs(value)));
  const line = (/** @type {string | Node} */ name, /** @type {number} */ value) => {
    const bar = make("span", { class: value < 0 ? "why-from why-less" : "why-from" });
    bar.style.width = `${Math.min(100, (100 * Math.abs(value)) / most)}%`;
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, signed(value, off)), make("td", { class: "why-bar" }, bar));
  };
  const lines = all.slice(0, LISTED).map(({ kind, name, value }) => {
    if (kind !== "head" || !jump) return line(kind === "head" ? `head ${name}` : name, value);
    const button = make("button", { type: "button", class: "link", "data-source": name }, `head ${name}`);
    button.addEventListener("click", () => jump(name));
    return line(button, value);
  });
  const rest = all.slice(LISTED);
  if (rest.length) lines.push(line(`${rest.length} others`, rest.reduce((sum, { value }) => sum + value, 0)));
  return make("table", { class: "why-sources" },
    make("thead", {}, make("tr", {}, ...[title, "adds", ""].map((name) => (name ? make("th", { scope: "col" }, name) : make("td"))))),
    make("tbody", {}, ...lines));
}

/**
 * Where query and key come from: what earlier parts of the model add to the score, on both sides.
 * @param {Asked} asked
 * @param {Reason} reason
 * @returns {Node[]}
 */
export function fromWhere({ terms, r, c, jump }, reason) {
  if (!terms.origins) return [];
  const { query, key } = terms.origins;
  const off = reason.off * terms.scale;
  return [
    make("h3", {}, "From where"),
    side("the query is from", sums(query, r, reason.k, terms.scale), off, jump),
    side("the key is from", sums(key, c, reason.q, terms.scale), off, jump),
    make("p", { class: "small" }, "What each adds to the scaled score, with the scale of every normalization held at its value here. A head opens when it is clicked."),
  ];
}
