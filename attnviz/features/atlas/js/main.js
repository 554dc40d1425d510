import { byId, fill, make } from "./dom.js";
import { drawCard } from "./card.js";
import { data, heads } from "./data.js";
import { startSaving } from "./download.js";
import { startFrame } from "./frame.js";
import { startHelpByKey } from "./help.js";
import { drawLarge } from "./large.js";
import { drawGrid, drawTiles, drawWhole, startGrid } from "./grid.js";
import { fromHash, get, set, subscribe } from "./state.js";
import { mark, numbers, startTable } from "./table.js";

let open = "";

/** The head that the address names. */
function show() {
  const name = get().head;
  const head = heads.find((one) => one.name === name);
  byId("card").hidden = !head;
  document.querySelector(".sides")?.classList.toggle("open", Boolean(head));
  mark(name);
  if (!head) open = "";
  if (!head) return;
  drawCard(head);
  document.title = `${head.name} · ${data.atlas.model}`;
  if (open === name) return;
  open = name;
  byId("card").scrollTop = 0;
  byId("card").focus({ preventScroll: innerWidth > 900 });
}

function start() {
  startFrame(() => { show(); drawGrid(); });
  const { summary, methods, notes, model, backend, exactness } = data.atlas;
  fill(byId("origin"), [model, `${backend} backend`, exactness].filter(Boolean).join(" · "));
  drawLarge();
  fill(byId("summary"), ...summary.map((line) => make("li", {}, line)));
  fill(/** @type {HTMLElement} */ (document.querySelector("#methods dl")), ...methods.flatMap(({ part, said }) => [make("dt", {}, part), make("dd", {}, said)]));
  fill(byId("notes"), ...notes.map((note) => make("p", {}, note)));
  startSaving("attnviz-atlas", drawWhole, numbers, { headline: () => summary[0] || model, card: drawTiles });
  startHelpByKey([["← ↑ ↓ →", "from head to head, in the grid"], ["Enter", "open the card of a head"], ["Esc", "close what is open"]]);
  startGrid();
  startTable();
  subscribe(show);
  document.addEventListener("click", (event) => {
    const [, name] = /^#(.*)$/.exec(/** @type {HTMLElement} */ (event.target).closest("a")?.getAttribute("href") || "") || [];
    if (name === undefined || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    set({ head: name });
  }, true);
  addEventListener("hashchange", fromHash);
  addEventListener("popstate", fromHash);
  fromHash();
}

start();
