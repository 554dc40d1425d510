import { byId, fill, make } from "./dom.js";
import { drawCard } from "./card.js";
import { data, heads } from "./data.js";
import { startFrame } from "./frame.js";
import { mark, startTable } from "./table.js";

/** The head that the address names. */
function show() {
  const name = decodeURIComponent(location.hash.slice(1));
  const head = heads.find((one) => one.name === name);
  byId("card").hidden = !head;
  document.querySelector(".sides")?.classList.toggle("open", Boolean(head));
  mark(name);
  if (!head) return;
  drawCard(head);
  document.title = `${head.name} · ${data.atlas.model}`;
  byId("card").scrollTop = 0;
  byId("card").focus({ preventScroll: innerWidth > 900 });
}

function start() {
  startFrame(show);
  const { summary, methods, notes, model, backend, exactness } = data.atlas;
  fill(byId("origin"), [model, `${backend} backend`, exactness].filter(Boolean).join(" · "));
  fill(byId("summary"), ...summary.map((line) => make("li", {}, line)));
  fill(/** @type {HTMLElement} */ (document.querySelector("#methods dl")), ...methods.flatMap(({ part, said }) => [make("dt", {}, part), make("dd", {}, said)]));
  fill(byId("notes"), ...notes.map((note) => make("p", {}, note)));
  startTable();
  addEventListener("hashchange", show);
  show();
}

start();
