// Only the rows in sight are in the document, so 50,000 pictures scroll like 50.
import { byId, clamp, fill, make } from "./dom.js";
import { plural, thousands } from "./numbers.js";
import { csvOf, jsonOf, startFiles } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { setAddress } from "./observed.js";

/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").Input} Input */
/** @typedef {import("./types.js").Row} Row */

/** @type {import("./types.js").Data} */
const data = JSON.parse(byId("data").textContent || "");
const [GAP, NAME] = [12, 40];
/** A tile that is as high as wide holds most maps, and the line below them. */
const [SHAPE, LINE] = [1, 30];
/** A finger that goes so far sideways turns to the next picture, in pixels. */
const SWIPE = 50;
/** Pixels above and below what is in sight. */
const AHEAD = 600;
const [FILE, LAYOUT, SITE, LAYER, HEAD, ROLES, BOX] = /** @type {const} */ ([0, 1, 2, 3, 4, 5, 6]);
/** What each filter but that of words looks at. */
const PLACES = /** @type {const} */ ({ layout: LAYOUT, site: SITE, layer: LAYER, head: HEAD, role: ROLES });
const SELECTS = /** @type {(keyof typeof PLACES)[]} */ (Object.keys(PLACES));

const list = byId("list");
const words = /** @type {HTMLInputElement} */ (byId("words"));
const view = /** @type {HTMLDialogElement} */ (byId("view"));
const before = /** @type {HTMLButtonElement} */ (byId("before"));
const after = /** @type {HTMLButtonElement} */ (byId("after"));
const size = /** @type {HTMLInputElement} */ (byId("size"));
const SIZE = size.value;

/** @type {Row[]} */
let rows = [];
/** Tiles beside each other, and how high a row of them is. */
let [across, high] = [1, 0];
/** @type {[Input, Picture][]} */
let shown = [];
/** The picture that is open, or was last. */
let opened = -1;
/** @type {number | undefined} */
let waiting;

/** @param {string} id @returns {HTMLSelectElement} */
function select(id) {
  return /** @type {HTMLSelectElement} */ (byId(id));
}

/** @param {string} selector @returns {HTMLElement} */
function the(selector) {
  return /** @type {HTMLElement} */ (document.querySelector(selector));
}

/**
 * @param {keyof typeof PLACES} id
 * @param {string} label
 * @param {(value: number) => string} name
 * @param {number} least values that there is something to choose from
 */
function choices(id, label, name, least = 2) {
  /** @type {Set<number>} */
  const found = new Set();
  for (const [, , , pictures] of data.items) {
    for (const picture of pictures) {
      const value = picture[PLACES[id]];
      for (const one of Array.isArray(value) ? value : [value]) if (one !== null) found.add(one);
    }
  }
  const values = [...found].sort((a, b) => a - b);
  fill(select(id), new Option(`all ${label}`, ""), ...values.map((value) => new Option(name(value), String(value))));
  select(id).hidden = values.length < least;
}

/** @param {Picture} picture */
function caption(picture) {
  const [, layout, number, layer, head, played] = picture;
  const site = select("site").hidden ? "" : `${data.sites[number]} `;
  let name = data.layouts[layout];
  if (head !== null) name = `head ${layer}.${head}`;
  else if (layer !== null) name = `layer ${layer}`;
  const roles = head === null ? [] : played.map((role) => data.roles[role]);
  return site + name + (roles.length ? `: ${roles.join(", ")}` : "");
}

/** @param {Picture} picture @param {[keyof typeof PLACES, number][]} wanted */
function matches(picture, wanted) {
  return wanted.every(([id, value]) => {
    const found = picture[PLACES[id]];
    return Array.isArray(found) ? found.includes(value) : found === value;
  });
}

function filter() {
  waiting = undefined;
  const sought = words.value.trim().toLowerCase();
  /** @type {[keyof typeof PLACES, number][]} */
  const wanted = SELECTS.filter((id) => select(id).value !== "").map((id) => [id, Number(select(id).value)]);
  shown = [];
  for (const item of data.items) {
    const [number, name, text, pictures] = item;
    if (sought && String(number) !== sought && !`${name} ${text}`.toLowerCase().includes(sought)) continue;
    for (const picture of pictures) if (matches(picture, wanted)) shown.push([item, picture]);
  }
  const total = data.items.reduce((sum, [, , , pictures]) => sum + pictures.length, 0);
  fill(byId("count"), `${thousands(shown.length)} of ${plural(total, "picture")}`);
  scrollTo(0, 0);
  lay();
  remember();
}

/** The address holds the filters and the picture that is open, so that a link shows the same. */
function remember() {
  const parts = new URLSearchParams();
  if (words.value) parts.set("words", words.value);
  for (const id of SELECTS) if (select(id).value) parts.set(id, select(id).value);
  if (size.value !== SIZE) parts.set("size", size.value);
  if (view.open) parts.set("picture", shown[opened][1][FILE]);
  setAddress(parts.size ? `#${parts}` : "");
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  words.value = parts.get("words") || "";
  size.value = parts.get("size") || SIZE;
  for (const id of SELECTS) {
    select(id).value = parts.get(id) || "";
    if (select(id).selectedIndex === -1) select(id).value = "";
  }
  const wanted = parts.get("picture");
  if (view.open) view.close();
  filter();
  if (wanted) show(shown.findIndex(([, picture]) => picture[FILE] === wanted));
}

function lay() {
  if (printing()) return;
  across = Math.max(1, Math.round((list.clientWidth + GAP) / (Number(size.value) + GAP)));
  const tile = Math.round(((list.clientWidth + GAP) / across - GAP) * SHAPE) + LINE;
  high = tile + GAP;
  list.style.setProperty("--across", String(across));
  list.style.setProperty("--high", `${tile}px`);
  rows = [];
  let y = 0;
  for (let at = 0; at < shown.length; ) {
    const item = shown[at][0];
    rows.push({ y, item });
    y += NAME;
    while (at < shown.length && shown[at][0] === item) {
      let end = at;
      while (end < shown.length && end - at < across && shown[end][0] === item) end += 1;
      rows.push({ y, from: at, to: end });
      y += high;
      at = end;
    }
  }
  list.style.height = `${y}px`;
  fill(list, ...(shown.length ? [] : [make("p", {}, "No picture matches; choose less.")]));
  drawn = new Map();
  draw();
}

/** @type {Map<number, HTMLElement>} */
let drawn = new Map();
function draw() {
  if (printing()) return;
  const top = scrollY - list.offsetTop - AHEAD;
  const bottom = scrollY - list.offsetTop + innerHeight + AHEAD;
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].y + high < top) low = middle + 1;
    else high = middle;
  }
  /** @type {Map<number, HTMLElement>} */
  const keep = new Map();
  for (let i = low; i < rows.length && rows[i].y < bottom; i += 1) {
    keep.set(i, drawn.get(i) || list.appendChild(row(rows[i])));
  }
  for (const [i, element] of drawn) if (!keep.has(i)) element.remove();
  drawn = keep;
}

/** @param {Row} found */
function row(found) {
  const element = make("div", { class: "item" in found ? "row name" : "row" });
  element.style.top = `${found.y}px`;
  if ("item" in found) {
    const [number, , text] = found.item;
    element.style.height = `${NAME - 8}px`;
    element.append(make("b", {}, String(number)), make("bdi", { title: text }, text));
    return element;
  }
  for (let at = found.from; at < found.to; at += 1) {
    const picture = shown[at][1];
    const tile = make("button", { class: picture[BOX] ? "tile" : "tile white", type: "button", "data-at": at }, thumbnail(picture), make("span", {}, caption(picture)));
    tile.addEventListener("click", () => show(at));
    element.append(tile);
  }
  return element;
}

/** Of a picture its maps alone, since words would be too small. @param {Picture} picture */
function thumbnail(picture) {
  const [image, box] = [whole(picture, true), picture[BOX]];
  if (!box || !(image instanceof HTMLImageElement)) return image;
  const [left, top, width, height] = box;
  const shown = make("i", { class: data.dark ? "maps dark" : "maps" }, image);
  shown.style.setProperty("--shape", String(width / height));
  image.addEventListener("load", () => {
    image.style.width = `${(100 * image.naturalWidth) / width}%`;
    image.style.transform = `translate(${(-100 * left) / image.naturalWidth}%, ${(-100 * top) / image.naturalHeight}%)`;
  });
  return make("i", { class: "frame" }, shown);
}

/** @param {Picture} picture @param {boolean} lazy */
function whole(picture, lazy) {
  if (picture[FILE].endsWith(".pdf")) return make("i", {}, "PDF");
  const image = make("img");
  if (lazy) image.loading = "lazy";
  image.decoding = "async";
  image.alt = lazy ? "" : caption(picture); // a tile has it as its text
  image.src = encodeURI(picture[FILE]);
  return image;
}

/** @param {number} at */
function show(at) {
  clearTimeout(waiting); // the list must not change behind a large picture
  if (at < 0 || at >= shown.length) return;
  opened = at;
  const [[number, , text], picture] = shown[at];
  fill(byId("caption"), caption(picture));
  fill(byId("sentence"), `${number}: ${text}`);
  /** @type {HTMLAnchorElement} */ (byId("file")).href = encodeURI(picture[FILE]);
  fill(byId("stage"), whole(picture, false));
  before.disabled = at === 0;
  after.disabled = at === shown.length - 1;
  if (!view.open) view.showModal();
  remember();
}

/** Back in the gallery, the picture that was shown last is in sight and has the focus. */
function back() {
  if (view.open) return; // another one is open already
  const last = shown[opened][1];
  if (waiting !== undefined) filter();
  remember();
  opened = shown.findIndex(([, picture]) => picture === last);
  focusOn(opened);
}

function printing() {
  return "print" in document.documentElement.dataset;
}

/** Every picture that the filters leave, in the document at once. */
function everything() {
  fill(list, ...rows.map(row));
  for (const image of list.querySelectorAll("img")) image.loading = "eager";
  drawn = new Map();
}

/** Print all of them, once they are there. */
async function print() {
  everything();
  await Promise.allSettled([...list.querySelectorAll("img")].map((image) => image.decode()));
  window.print();
}

/** The pictures that the filters leave, a line each. */
function* lines() {
  yield ["number", "name", "text", "file", "layout", "attention", "layer", "index", "head", "roles"];
  for (const [[number, name, text], [file, layout, site, layer, head, roles]] of shown) {
    yield [String(number), name, text, file, data.layouts[layout], data.sites[site], String(layer ?? ""), String(head ?? ""), head === null ? "" : `${layer}.${head}`, roles.map((role) => data.roles[role]).join(" ")];
  }
}

/** From tile to tile by arrow keys. @param {KeyboardEvent} event */
function moved(event) {
  const from = Number(/** @type {HTMLElement} */ (event.target).dataset.at);
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, Home: -shown.length, End: shown.length }[event.key];
  if (!step || Number.isNaN(from) || event.ctrlKey || event.metaKey || event.altKey) return;
  focusOn(clamp(from + step, 0, shown.length - 1));
  event.preventDefault();
}

/** Bring a tile into sight and focus it. @param {number} at */
function focusOn(at) {
  const place = rows.find((found) => "from" in found && found.from <= at && at < found.to);
  if (!place) return words.focus();
  const top = place.y + list.offsetTop - scrollY;
  const header = the(".filters").offsetHeight;
  if (top < header || top + high > innerHeight) scrollBy(0, top - header - NAME);
  draw();
  the(`#list [data-at="${at}"]`).focus({ preventScroll: true });
}

startFrame(() => {});
startHelpByKey([["← ↑ ↓ →", "from picture to picture"], ["Enter", "open a picture"], ["Home", "the first picture"], ["End", "the last picture"], ["Esc", "close what is open"]]);
fill(the("h1"), data.title);
document.title = `attention maps: ${data.title}`;
choices("layout", "layouts", (value) => data.layouts[value]);
choices("site", "attention", (value) => data.sites[value]);
choices("layer", "layers", (value) => `layer ${value}`);
choices("head", "heads", (value) => `head ${value}`);
choices("role", "roles", (value) => data.roles[value], 1);

the(".filters").addEventListener("submit", (event) => event.preventDefault());
the(".filters").addEventListener("input", (event) => {
  clearTimeout(waiting);
  if (event.target === size) {
    lay();
    remember();
    return;
  }
  waiting = setTimeout(filter, 120);
});
list.addEventListener("keydown", moved);
let touched = 0;
byId("stage").addEventListener("touchstart", (event) => { touched = event.touches[0].clientX; }, { passive: true });
byId("stage").addEventListener("touchend", (event) => {
  const far = event.changedTouches[0].clientX - touched;
  if (Math.abs(far) >= SWIPE) show(opened - Math.sign(far));
});
byId("print").addEventListener("click", print);
startFiles(() => "attnviz-pictures", { csv: () => csvOf(lines()), json: () => jsonOf(lines()) });
addEventListener("beforeprint", everything);
addEventListener("afterprint", lay);
addEventListener("scroll", draw, { passive: true });
addEventListener("resize", lay);
before.addEventListener("click", () => show(opened - 1));
after.addEventListener("click", () => show(opened + 1));
byId("close").addEventListener("click", () => view.close());
view.addEventListener("close", back);
view.addEventListener("click", (event) => { if (event.target === view) view.close(); });
document.addEventListener("keydown", (event) => {
  if (!view.open) return;
  if (event.key === "ArrowLeft") show(opened - 1);
  if (event.key === "ArrowRight") show(opened + 1);
});
addEventListener("hashchange", recall);
recall();
