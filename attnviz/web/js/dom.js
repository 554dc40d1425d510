/** An element of the page's own markup. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * A new element; text goes in as text only.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number | boolean>} [attributes] `true` sets an empty attribute, `false` leaves it out
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/** An element in a colour, with an ink that reads on it. @template {HTMLElement} T @param {T} element @param {{ ground: string, ink: string }} colors @returns {T} */
export function painted(element, { ground, ink }) {
  element.style.background = ground;
  element.style.color = ink;
  return element;
}

/** A spot in a colour. @param {string} [color] */
export function chip(color = "transparent") {
  const spot = make("span", { class: "chip" });
  spot.style.background = color;
  return spot;
}

/** @param {HTMLElement} element @param {...(Node | string)} children */
export function fill(element, ...children) {
  element.replaceChildren(...children);
}

/** @param {string[]} titles of the columns @param {(string | Node)[][]} rows */
export function table(titles, rows) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))))));
}

/** @param {number} value @param {number} low @param {number} high */
export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** @param {string} text */
export function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

/**
 * Where an arrow key goes, across and down; nothing for another key, or where one of the system's is held.
 * @param {KeyboardEvent} event
 * @returns {[number, number] | undefined}
 */
export function arrow({ key, ctrlKey, metaKey, altKey }) {
  const ways = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });
  return ctrlKey || metaKey || altKey ? undefined : ways[key];
}

/** @type {number | undefined} */
let speaking;

/** Tell a screen reader, once things have settled. @param {string} text */
export function say(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => { byId("spoken").textContent = text; }, 120);
}
