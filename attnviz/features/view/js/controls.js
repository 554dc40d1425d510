import { byId, chip, fill, make } from "./dom.js";
import { fixed, thousands } from "./numbers.js";
import { described, headsOf, isFolded, itemOf, kindOf, page, roleOf, sceneOf, signOf } from "./data.js";
import { strongest } from "./groups.js";
import { get, MIXES, QUADRANTS, set, shows, toggle, viewsOf } from "./store.js";
import { ink } from "./colors.js";
import { runName } from "./comparison.js";
import { axesOf, fullSaid, isPair, matches, mixOf, precision } from "./panel.js";

/** @typedef {import("./types.js").State} State */

/** Heads of a layer in the panel, where only the strongest are shown. */
const IN_PANEL = 11;
let built = "";

/** The switches, and the entry of the state that each one is. @type {[string, "words" | "separators" | "first" | "rescale" | "toward" | "letters"][]} */
const SWITCHES = [["words", "words"], ["separators", "separators"], ["first", "first"], ["rescale", "rescale"], ["toward", "toward"], ["letters", "letters"]];
/** @type {[string, "palette" | "scale" | "theme" | "quad"][]} */
const CHOICES = [["palette", "palette"], ["scale", "scale"], ["theme", "theme"], ["quad", "quad"]];

/** @param {string} id */
function input(id) {
  return /** @type {HTMLInputElement} */ (byId(id));
}

/** The small grid of heads that turns them on and off. @param {State} state */
function buildHeads(state) {
  const heads = headsOf(state);
  const kind = kindOf(state);
  const folded = isFolded(state);
  const widest = folded ? IN_PANEL : Math.max(...heads.map(({ data }) => data.index)) + 1;
  const rows = kind.sites.map((site) => {
    /** @type {Map<number, HTMLElement>} */
    const cells = new Map();
    const own = heads.filter((head) => head.site === site);
    for (const [at, head] of (folded ? strongest(state, own, IN_PANEL) : own).entries()) {
      const role = roleOf.get(signOf(head));
      const button = make("button", { type: "button", class: "cell", tabindex: "-1", "data-head": head.id, "aria-label": described(head), title: described(head) });
      if (role) button.style.setProperty("--role", role.color);
      cells.set(folded ? at : head.data.index, button);
    }
    const all = make("button", { type: "button", class: "layer", "data-layer": site.layer, "aria-label": `layer ${site.layer}, all its heads`, title: `all heads of layer ${site.layer}` }, String(site.layer));
    const line = Array.from({ length: widest }, (_, i) => cells.get(i) || make("span", { class: "cell gone" }));
    return make("div", { class: "heads-row" }, all, ...line);
  });
  const grid = byId("heads");
  document.documentElement.style.setProperty("--across", String(widest));
  fill(grid, ...rows);
  const counts = new Map();
  for (const head of heads) counts.set(signOf(head), (counts.get(signOf(head)) || 0) + 1);
  const none = { name: "", color: "transparent", reason: "on this text" };
  const chips = [...page.roles, none].filter(({ name }) => counts.has(name)).map(({ name, color, reason }) => {
    const title = `only heads that show ${name || "no role"}; ${reason}`;
    return make("button", { type: "button", class: "role", "data-role": name, "aria-pressed": "false", title }, chip(color), `${name || "no role"} ${counts.get(name)}`);
  });
  fill(byId("roles"), ...chips);
}

/** @param {State} state */
function build(state) {
  const key = `${state.text} ${state.kind} ${state.writes} ${isFolded(state)}`;
  if (key === built) return;
  built = key;
  const item = itemOf(state);
  buildHeads(state);
  byId("kinds").hidden = item.kinds.length < 2;
  fill(byId("kinds"), ...item.kinds.map(({ kind, title }) => make("button", { type: "button", "data-kind": kind, title }, kind)));
  byId("quantity-line").hidden = !item.written.length;
  if (item.written.length) {
    const both = /** @type {[boolean, string][]} */ ([[false, "weights"], [true, item.written[0].formula]]);
    fill(byId("quantity"), ...both.map(([writes, name]) => make("button", { type: "button", "data-writes": String(Number(writes)), "aria-pressed": String(writes === state.writes) }, name)));
  }
  const one = byId("scale").querySelector("[value=one]");
  if (one) one.textContent = fullSaid(state);
  byId("quad-line").hidden = !isPair(state);
  // of two runs the foot has both, the one that is shown first
  const runs = page.against ? [state, { ...state, text: state.text ^ 1 }] : [state];
  fill(byId("origin"), ...runs.map((one) => {
    const { run, origin } = itemOf(one);
    const said = `${origin} · ${precision(one)}`;
    return make("span", {}, run && !said.startsWith(`${run} ·`) ? `${run}: ${said}` : said);
  }));
  const spaced = runs.some((one) => itemOf(one).axes.some(({ labels }) => labels.some((label) => /^·.|.·$/.test(label))));
  const notes = new Set(runs.flatMap((one) => itemOf(one).notes));
  if (spaced) notes.add("A dot (·) at the edge of a token stands for a space.");
  fill(byId("notes"), ...[...notes].map((note) => make("p", {}, note)));
  fill(byId("sentence"), ...(item.run ? [make("strong", {}, `${item.run}: `)] : []), make("bdi", {}, item.text));
  byId("sentence").title = item.run ? `${item.run}: ${item.text}` : item.text;
}

/** A control that would change nothing in the open view cannot be used there. @param {State} state */
function enable(state) {
  const { view } = state;
  const drawn = ["stage", "map", "lines", "text", "scene"].includes(view);
  const several = state.on.length > 1;
  const { queries, keys } = kindOf(state);
  const axes = [itemOf(state).axes[queries], itemOf(state).axes[keys]];
  /** @type {Record<string, boolean>} */
  const use = {
    find: drawn,
    words: axes.some(({ labels, starts }) => starts.length < labels.length),
    separators: axes.some(({ separators }) => separators.includes(1)),
    scale: view !== "lines" && view !== "card",
    palette: view === "overview" || view === "stage" || ((view === "map" || view === "scene") && (!several || mixOf(state, state.on.length) !== "blend")),
  };
  for (const [id, can] of Object.entries(use)) {
    input(id).disabled = !can && !input(id).checked;
    (input(id).closest(".line, .check") || input(id)).setAttribute("title", can ? "" : "has no effect here");
  }
  for (const button of byId("mix").querySelectorAll("button")) button.disabled = !drawn || !several;
  byId("mix").title = drawn && several ? "" : "for several heads in a map, lines, text or picture";
}

/** @param {State} state */
export function drawControls(state) {
  build(state);
  const on = new Set(state.on);
  for (const button of byId("heads").querySelectorAll("button")) {
    const id = button.dataset.head;
    if (id) {
      button.setAttribute("aria-pressed", String(on.has(id)));
      button.classList.toggle("current", id === state.head);
      button.tabIndex = id === state.head ? 0 : -1;
    } else {
      const whole = headsOf(state).filter(({ site }) => String(site.layer) === button.dataset.layer);
      button.setAttribute("aria-pressed", String(whole.every((head) => on.has(head.id))));
    }
  }
  const held = /** @type {HTMLElement | null} */ (document.activeElement);
  if (held?.classList.contains("cell") && held.dataset.head !== state.head) {
    /** @type {HTMLElement | null} */ (byId("heads").querySelector(".current"))?.focus();
  }
  for (const button of byId("roles").querySelectorAll("button")) {
    const some = headsOf(state).filter((head) => signOf(head) === button.dataset.role);
    button.setAttribute("aria-pressed", String(some.length === on.size && some.every(({ id }) => on.has(id))));
  }
  for (const button of byId("kinds").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.kind === state.kind));
  for (const button of byId("tabs").querySelectorAll("button")) {
    const own = button.dataset.view === state.view;
    button.setAttribute("aria-selected", String(own));
    button.tabIndex = own ? 0 : -1;
    button.hidden = !viewsOf(state).includes(button.dataset.view || "");
  }
  const own = byId("scale").querySelector("[value=map]");
  if (own) own.textContent = state.view === "scene" ? "the largest weight shown" : "the head's largest weight";
  byId("tab-scene").textContent = sceneOf(state)?.kind === "sound" ? "Sound" : "Picture";
  const mixed = mixOf(state, state.on.length);
  for (const button of byId("mix").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.mix === (mixed === "single" ? state.mix : mixed)));
  const [some, all] = [state.on, headsOf(state)].map(one => thousands(one.length));
  byId("on-count").textContent = `${some} of ${all} on`;
  for (const [id, name] of SWITCHES) input(id).checked = state[name];
  for (const [id, name] of CHOICES) input(id).value = state[name];
  input("texts").value = String(state.text);
  if (held !== byId("top")) input("top").value = String(state.top);
  input("least").value = String(state.least);
  byId("least-said").textContent = fixed(state.least, 2);
  if (held !== byId("find")) input("find").value = state.find;
  const { queries, keys } = axesOf(state);
  const count = matches(queries, state.find).length + (queries === keys ? 0 : matches(keys, state.find).length);
  byId("find-said").textContent = state.find ? `${count} match${count === 1 ? "" : "es"}` : "";
  byId("lines-options").hidden = state.view !== "lines";
  byId("direction-line").hidden = !shows(state, "text") && !shows(state, "scene");
  enable(state);
  const { paper } = ink();
  document.querySelector("meta[name=theme-color]")?.setAttribute("content", paper);
}

/** The next match of what is searched for becomes the pinned token. @param {number} by 1 or -1 */
export function nextMatch(by) {
  const state = get();
  const { queries, keys } = axesOf(state);
  const all = [...matches(queries, state.find).map((i) => `q${queries.from[i]}`)];
  if (queries !== keys) all.push(...matches(keys, state.find).map((i) => `k${keys.from[i]}`));
  if (!all.length) return;
  const now = all.indexOf(state.pin);
  set({ pin: all[(now + by + all.length) % all.length] });
}

/** @param {string[]} ids */
function flip(ids) {
  const { on } = get();
  const all = ids.every((id) => on.includes(id));
  const next = all ? on.filter((id) => !ids.includes(id)) : [...on, ...ids];
  set({ on: next.length ? next : on });
}

export function startControls() {
  byId("tabs").addEventListener("click", (event) => {
    const view = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.view;
    if (view) set({ view });
  });
  byId("heads").addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    if (button?.dataset.head) {
      if (event.shiftKey || input("several").checked) toggle(button.dataset.head);
      else set({ on: [button.dataset.head], head: button.dataset.head });
    } else if (button?.dataset.layer) {
      flip(headsOf(get()).filter(({ site }) => String(site.layer) === button.dataset.layer).map(({ id }) => id));
    }
  });
  byId("heads").addEventListener("keydown", (event) => {
    const { head } = /** @type {HTMLElement} */ (event.target).dataset;
    if (event.key !== " " || !head) return;
    toggle(head);
    event.preventDefault();
  });
  byId("roles").addEventListener("click", (event) => {
    const name = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.role;
    const some = headsOf(get()).filter((head) => signOf(head) === name).map(({ id }) => id);
    if (!some.length) return;
    if (event.shiftKey) flip(some);
    else set({ on: some, head: some[0] });
  });
  byId("kinds").addEventListener("click", (event) => {
    const kind = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.kind;
    if (kind) set({ kind, quad: "all" });
  });
  byId("quantity").addEventListener("click", (event) => {
    const writes = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.writes;
    if (writes) set({ writes: writes === "1" });
  });
  byId("mix").addEventListener("click", (event) => {
    const mix = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.mix;
    if (mix) set({ mix });
  });
  byId("all-on").addEventListener("click", () => set({ on: headsOf(get()).map(({ id }) => id) }));
  byId("only-this").addEventListener("click", () => set({ on: [get().head] }));
  for (const [id, name] of SWITCHES) input(id).addEventListener("change", () => set({ [name]: input(id).checked }));
  for (const [id, name] of CHOICES) input(id).addEventListener("change", () => set({ [name]: input(id).value }));
  input("texts").addEventListener("change", () => set({ text: Number(input("texts").value) }));
  input("top").addEventListener("input", () => {
    const wanted = Math.trunc(Number(input("top").value));
    if (wanted >= 1) set({ top: wanted });
  });
  input("top").addEventListener("blur", () => { input("top").value = String(get().top); });
  input("least").addEventListener("input", () => set({ least: Number(input("least").value) }));
  input("find").addEventListener("input", () => set({ find: input("find").value }));
  input("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      set({ find: "" });
      input("find").value = "";
      input("find").blur();
    }
  });
  const texts = /** @type {HTMLSelectElement} */ (byId("texts"));
  page.items.forEach((_, i) => texts.append(make("option", { value: i }, runName(i))));
  byId("texts-line").hidden = page.items.length < 2;
  const palettes = byId("palette");
  for (const name of Object.keys(page.palettes)) palettes.append(make("option", { value: name }, name));
  fill(byId("mix"), ...MIXES.map((mix) => make("button", { type: "button", "data-mix": mix }, mix)));
  const words = { all: "both", AA: "A → A", AB: "A → B", BA: "B → A", BB: "B → B" };
  for (const quad of QUADRANTS) byId("quad").append(make("option", { value: quad }, /** @type {any} */ (words)[quad]));
}
