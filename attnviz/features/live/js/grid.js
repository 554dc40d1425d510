import { byId, chip, fill, make, say } from "./dom.js";
import { fixed } from "./numbers.js";
import { allFacts, rolesText } from "./facts.js";
import { legend } from "./legend.js";
import { draw, picture } from "./shade.js";
import { changesOf, get, page, set, turnOff } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").HeadFacts} HeadFacts */

const across = Math.max(...page.heads.map(({ id }) => Number(id.split(".")[1]))) + 1;
/** @type {Map<string, HTMLElement>} */
const tiles = new Map();
const allOn = make("button", { type: "button", id: "all-on" }, "all on");

/** Make a tile for every head, and the switches of several. */
export function startGrid() {
  const grid = byId("grid");
  document.documentElement.style.setProperty("--across", String(across));
  for (let layer = 0; layer * across < page.heads.length; layer++) {
    const ids = page.heads.slice(layer * across, (layer + 1) * across).map(({ id }) => id);
    const all = make("button", { type: "button", class: "layer", title: `switch layer ${layer} off or on` }, String(layer));
    all.addEventListener("click", () => toggle(ids));
    grid.append(all, ...page.heads.slice(layer * across, (layer + 1) * across).map(tile));
  }
  allOn.addEventListener("click", () => set({ off: new Set() }));
  byId("switch").addEventListener("click", () => toggle([get().head]));
  drawRoles();
}

/** What was drawn last. @type {HeadFacts[] | null} */
let drawn = null;

/** The roles of heads, where they were measured anew: signs on maps, and switches of all heads of one. */
export function drawRoles() {
  byId("groups").classList.toggle("stale", rolesText() !== get().text);
  if (drawn === allFacts()) return;
  drawn = allFacts();
  const roles = new Map();
  for (const { id, role, said } of drawn) {
    if (role) roles.set(role.name, { role, ids: [...(roles.get(role.name)?.ids || []), id] });
    const show = /** @type {HTMLElement} */ (tiles.get(id)?.querySelector(".tile"));
    const code = /** @type {HTMLElement} */ (show.querySelector(".code"));
    fill(code, role ? role.code : "·");
    code.style.background = role ? role.color : "";
    code.style.color = role ? role.ink : "";
    show.title = `${id}: ${said}`;
    fill(/** @type {HTMLElement} */ (show.querySelector(".hidden")), said);
  }
  const order = [...roles.entries()].sort(([a], [b]) => a.localeCompare(b));
  fill(byId("groups"), ...order.map(([name, { role, ids }]) => {
    const button = make("button", { type: "button", class: "role", "aria-pressed": "false", title: `switch ${ids.join(", ")} off or on` }, chip(role.color), `${name} ${ids.length}`);
    button.dataset.ids = ids.join();
    button.addEventListener("click", () => toggle(ids));
    return button;
  }), allOn);
  drawSwitches();
}

/** What the colours of the maps mean. */
function drawLegend() {
  fill(byId("grid-legend"), ...legend(page.palette, "0", "1, by the square root of the weight", page.causal));
}

/** @param {string[]} ids */
function toggle(ids) {
  const off = !ids.every((id) => get().off.has(id));
  turnOff(ids, off);
  say(`${ids.join(", ")} ${off ? "off" : "on"}`);
}

/** @param {HeadFacts} head */
function tile({ id }) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const label = make("span", { class: "label" }, make("span", {}, id), make("span", { class: "code" }));
  const show = make("button", { type: "button", class: "tile", "data-head": id }, canvas, make("span", { class: "moved" }), label, make("span", { class: "hidden" }));
  const power = make("button", { type: "button", class: "power", tabindex: "-1", "aria-label": `switch ${id} off`, title: "switch off or on (x)", "aria-pressed": "false" }, "off");
  power.addEventListener("click", () => toggle([id]));
  show.addEventListener("click", (event) => (event.shiftKey ? toggle([id]) : set({ head: id })));
  show.addEventListener("keydown", (event) => moved(event, id));
  const whole = make("div", { class: "cell" }, show, power);
  tiles.set(id, whole);
  return whole;
}

/** @param {KeyboardEvent} event @param {string} id */
function moved(event, id) {
  const at = page.heads.findIndex((head) => head.id === id);
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
  if (step) {
    const to = page.heads[at + step];
    if (to) set({ head: to.id });
    if (to) /** @type {HTMLElement} */ (tiles.get(to.id)?.firstElementChild).focus();
  } else if (event.key === "x") toggle([id]);
  else return;
  event.preventDefault();
}

/** Which are off, and which one is shown. */
export function drawSwitches() {
  const { off, head } = get();
  for (const [id, cell] of tiles) {
    cell.classList.toggle("off", off.has(id));
    cell.classList.toggle("current", id === head);
    const [show, power] = /** @type {HTMLElement[]} */ ([...cell.children]);
    show.tabIndex = id === head ? 0 : -1;
    show.setAttribute("aria-current", String(id === head));
    power.setAttribute("aria-pressed", String(off.has(id)));
  }
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#groups [data-ids]"))) {
    const ids = (button.dataset.ids || "").split(",");
    button.setAttribute("aria-pressed", String(ids.every((id) => off.has(id))));
  }
  allOn.toggleAttribute("disabled", !off.size);
  byId("off-count").textContent = off.size ? `${off.size} of ${page.heads.length} off` : `${page.heads.length}`;
  const ours = byId("switch");
  ours.textContent = off.has(head) ? `${head} is off: switch on` : `switch ${head} off`;
  ours.setAttribute("aria-pressed", String(off.has(head)));
}

/** The small maps, and how far each moved. @param {Answer} answer */
export function drawGrid({ ids, before, after, changes }) {
  const size = /** @type {HTMLElement} */ (tiles.values().next().value?.querySelector(".tile")).clientWidth - 4;
  const most = changes ? Math.max(0.05, ...changes) : 0;
  for (const [n, { id }] of page.heads.entries()) {
    const [layer, head] = [Math.trunc(n / across), n % across];
    const cell = /** @type {HTMLElement} */ (tiles.get(id));
    const canvas = /** @type {HTMLCanvasElement} */ (cell.querySelector("canvas"));
    draw(canvas, picture((after || before)[layer], head, ids.length), ids.length, size);
    const far = changes ? changes[n] : 0;
    cell.style.setProperty("--moved", String(most ? far / most : 0));
    const moved = /** @type {HTMLElement} */ (cell.querySelector(".moved"));
    moved.textContent = changes && far >= 0.005 ? `Δ${fixed(far, 2)}` : "";
  }
  drawLegend();
  fill(byId("grid-said"), changes
    ? `Maps with ${changesOf(get())}. Δ and the frame: how far a head's rows moved (mean Jensen-Shannon distance, 0 to 1).`
    : "Small maps: rows are the tokens that look, columns those looked at.");
}
