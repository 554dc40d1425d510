"use strict";
// Only the rows in sight are in the document, so 50,000 pictures scroll like 50.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const TILE = 180, GAP = 12, HIGH = 224, NAME = 40;
const [FILE, KIND, SITE, LAYER, HEAD, ROLES] = [0, 1, 2, 3, 4, 5];
const list = $("list");
const FILTERS = ["words", "kind", "site", "layer", "head", "role"];
let rows = [], shown = [], opened = -1, waiting = 0;

document.querySelector("h1").textContent = data.title;
document.title = "attention maps: " + data.title;

function make(tag, text, className) {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  if (className) found.className = className;
  return found;
}

function choices(id, label, values, name) {
  const box = $(id);
  box.append(new Option("all " + label, ""));
  for (const value of values) box.append(new Option(name(value), String(value)));
  box.hidden = values.length < 2;
}

function distinct(place) {
  const found = new Set();
  for (const item of data.items) for (const p of item[3]) if (p[place] !== null) found.add(p[place]);
  return [...found].sort((a, b) => a - b);
}

choices("kind", "kinds", distinct(KIND), (v) => data.kinds[v]);
choices("site", "attention", distinct(SITE), (v) => data.sites[v]);
choices("layer", "layers", distinct(LAYER), (v) => "layer " + v);
choices("head", "heads", distinct(HEAD), (v) => "head " + v);
const played = new Set();
for (const item of data.items) for (const p of item[3]) for (const role of p[ROLES]) played.add(role);
choices("role", "roles", [...played].sort((a, b) => a - b), (v) => data.roles[v]);
$("role").hidden = played.size === 0;

function caption(p) {
  const site = $("site").hidden ? "" : data.sites[p[SITE]] + " ";
  let name = data.kinds[p[KIND]];
  if (p[HEAD] !== null) name = "head " + p[LAYER] + "." + p[HEAD];
  else if (p[LAYER] !== null) name = "layer " + p[LAYER];
  const roles = p[HEAD] === null ? [] : p[ROLES].map((r) => data.roles[r]);
  return site + name + (roles.length ? ": " + roles.join(", ") : "");
}

function matches(p, wanted) {
  for (const [place, value] of wanted) {
    if (place === ROLES ? !p[ROLES].includes(value) : p[place] !== value) return false;
  }
  return true;
}

function filter() {
  waiting = 0;
  const words = $("words").value.trim().toLowerCase();
  const wanted = [];
  for (const [id, place] of [["kind", KIND], ["site", SITE], ["layer", LAYER], ["head", HEAD], ["role", ROLES]]) {
    if ($(id).value !== "") wanted.push([place, Number($(id).value)]);
  }
  shown = [];
  for (const item of data.items) {
    const text = item[1] + " " + item[2];
    if (words && String(item[0]) !== words && !text.toLowerCase().includes(words)) continue;
    for (const p of item[3]) if (matches(p, wanted)) shown.push([item, p]);
  }
  const total = data.items.reduce((sum, item) => sum + item[3].length, 0);
  $("count").textContent = shown.length.toLocaleString("en") + " of " + total.toLocaleString("en") + " pictures";
  window.scrollTo(0, 0);
  lay();
  remember();
}

// the address holds the filters and the picture that is open, so that a link shows the same
function remember() {
  const parts = new URLSearchParams();
  for (const id of FILTERS) if ($(id).value) parts.set(id, $(id).value);
  if ($("view").open) parts.set("picture", shown[opened][1][FILE]);
  const hash = parts.size ? "#" + parts : location.pathname + location.search;
  try {
    history.replaceState(null, "", hash);
  } catch {
    // a frame without an address of its own, or too many changes at once
  }
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const id of FILTERS) {
    $(id).value = parts.get(id) || "";
    if ($(id).selectedIndex === -1) $(id).value = "";
  }
  const wanted = parts.get("picture");
  if ($("view").open) $("view").close();
  filter();
  if (wanted) show(shown.findIndex(([, p]) => p[FILE] === wanted));
}

function lay() {
  const across = Math.max(1, Math.floor((list.clientWidth + GAP) / (TILE + GAP)));
  list.style.setProperty("--across", across);
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
      y += HIGH;
      at = end;
    }
  }
  list.style.height = y + "px";
  list.replaceChildren();
  if (!shown.length) list.append(make("p", "No picture matches; choose less."));
  drawn = new Map();
  draw();
}

let drawn = new Map();
function draw() {
  const top = window.scrollY - list.offsetTop - 600;
  const bottom = window.scrollY - list.offsetTop + window.innerHeight + 600;
  let low = 0, high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].y + HIGH < top) low = middle + 1; else high = middle;
  }
  const keep = new Map();
  for (let i = low; i < rows.length && rows[i].y < bottom; i += 1) {
    keep.set(i, drawn.get(i) || list.appendChild(row(rows[i])));
  }
  for (const [i, element] of drawn) if (!keep.has(i)) element.remove();
  drawn = keep;
}

function row(found) {
  const element = make("div", undefined, found.item ? "row name" : "row");
  element.style.top = found.y + "px";
  if (found.item) {
    element.style.height = NAME - 8 + "px";
    element.append(make("b", String(found.item[0])), make("bdi", found.item[2]));
    element.lastChild.title = found.item[2];
    return element;
  }
  for (let at = found.from; at < found.to; at += 1) {
    const p = shown[at][1];
    const tile = make("button", undefined, "tile");
    tile.type = "button";
    tile.append(thumbnail(p, true), make("span", caption(p)));
    tile.dataset.at = at;
    tile.addEventListener("click", () => show(at));
    element.append(tile);
  }
  return element;
}

function thumbnail(p, lazy) {
  if (p[FILE].endsWith(".pdf")) return make("i", "PDF");
  const image = make("img");
  if (lazy) image.loading = "lazy";
  image.decoding = "async";
  image.alt = caption(p);
  image.src = encodeURI(p[FILE]);
  return image;
}

function show(at) {
  clearTimeout(waiting); // the list must not change behind a large picture
  if (at < 0 || at >= shown.length) return;
  opened = at;
  const [item, p] = shown[at];
  $("caption").textContent = caption(p);
  $("sentence").textContent = item[0] + ": " + item[2];
  $("file").href = encodeURI(p[FILE]);
  $("stage").replaceChildren(thumbnail(p, false));
  $("before").disabled = at === 0;
  $("after").disabled = at === shown.length - 1;
  if (!$("view").open) $("view").showModal();
  remember();
}

// back in the gallery, the picture that was shown last is in sight and has the focus
function back() {
  if ($("view").open) return; // another one is open already
  const last = shown[opened][1];
  if (waiting) filter();
  remember();
  opened = shown.findIndex(([, p]) => p === last);
  if (opened < 0) return $("words").focus();
  const place = rows.find((found) => found.from <= opened && opened < found.to);
  const top = place.y + list.offsetTop - window.scrollY;
  const header = document.querySelector("header").offsetHeight;
  if (top < header || top + HIGH > window.innerHeight) window.scrollBy(0, top - header - NAME);
  draw();
  list.querySelector('[data-at="' + opened + '"]').focus({ preventScroll: true });
}

document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
document.querySelector("form").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(filter, 120);
});
window.addEventListener("scroll", draw, { passive: true });
window.addEventListener("resize", lay);
$("before").addEventListener("click", () => show(opened - 1));
$("after").addEventListener("click", () => show(opened + 1));
$("close").addEventListener("click", () => $("view").close());
$("view").addEventListener("close", back);
$("view").addEventListener("click", (event) => { if (event.target === $("view")) $("view").close(); });
document.addEventListener("keydown", (event) => {
  if (!$("view").open) return;
  if (event.key === "ArrowLeft") show(opened - 1);
  if (event.key === "ArrowRight") show(opened + 1);
});
window.addEventListener("hashchange", recall);
recall();
