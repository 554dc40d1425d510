// All heads: a small curve each, with the role that it has at this step.
import { arrow, byId, clamp, fill, make } from "./dom.js";
import { shown } from "./numbers.js";
import { colorOf, data, share } from "./data.js";
import { get, set } from "./state.js";
import { draw } from "./svg.js";

/** @type {{ button: HTMLButtonElement, role: HTMLElement, said: HTMLElement, now: SVGElement, parts: SVGElement[] }[]} */
const cells = [];

/** @param {import("./types.js").Head} head */
function curve(head) {
  const found = head.scores[head.score];
  const picture = draw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (!found) return { picture, parts: [] };
  const top = data.shares.includes(head.score) ? 1 : Math.max(1, ...found.mean.map((one) => one || 0));
  const points = found.mean.flatMap((value, n) => value === null ? [] : [`${100 * share(data.steps[n])},${98 - 92 * value / top}`]);
  const parts = [
    draw("polygon", { class: "band", points: `0,100 ${points.join(" ")} 100,100` }),
    draw("polyline", { class: "curve", points: points.join(" "), "vector-effect": "non-scaling-stroke" }),
  ];
  picture.append(...parts);
  return { picture, parts };
}

export function startGrid() {
  const grid = byId("grid");
  grid.style.setProperty("--across", String(1 + Math.max(...data.heads.map(({ column }) => column))));
  /** @type {HTMLElement[]} */
  const found = [];
  let row = -1;
  data.heads.forEach((head, n) => {
    if (head.row !== row) {
      row = head.row;
      const label = make("span", { class: "layer" }, data.layers[row]);
      label.style.gridColumn = "1";
      found.push(label);
    }
    const role = make("span", { class: "role" });
    const { picture, parts } = curve(head);
    const now = draw("line", { class: "now", y1: 0, y2: 100, "vector-effect": "non-scaling-stroke" });
    picture.append(now);
    const said = make("span", { class: "hidden" });
    role.setAttribute("aria-hidden", "true");
    const button = make("button", { type: "button", "aria-pressed": "false" }, make("span", { class: "tag" }, head.name), role, said);
    button.prepend(picture);
    button.addEventListener("click", () => set({ head: n }));
    cells.push({ button, role, said, now, parts });
    found.push(button);
  });
  fill(grid, ...found);
  grid.addEventListener("keydown", (event) => {
    const [across, down] = arrow(event) || [0, 0];
    if (!across && !down) return;
    event.preventDefault();
    const { head } = get();
    const { row: line, column } = data.heads[head];
    const below = data.heads.findIndex((one) => one.row === line + down && one.column === column);
    const next = down ? below : clamp(head + across, 0, data.heads.length - 1);
    if (next < 0) return;
    set({ head: next });
    cells[next].button.focus();
  });
}

export function drawGrid() {
  const { step, head } = get();
  const at = 100 * share(data.steps[step]);
  cells.forEach(({ button, role, said, now, parts }, n) => {
    const one = data.heads[n];
    const color = colorOf(one.role || "");
    parts[0]?.setAttribute("fill", color);
    parts[1]?.setAttribute("stroke", color);
    const [title = ""] = one.roles[step];
    const kind = title.split(":")[0];
    const known = data.roles[kind];
    const value = one.scores[one.score]?.mean[step];
    role.textContent = known ? known.code : "";
    role.style.background = known ? known.color : "none";
    role.style.color = known ? known.ink : "inherit";
    now.setAttribute("x1", String(at));
    now.setAttribute("x2", String(at));
    button.setAttribute("aria-pressed", String(n === head));
    button.tabIndex = n === head ? 0 : -1;
    const score = value === null || value === undefined ? "" : `, ${one.score.replaceAll("_", " ")} ${shown(value)}`;
    said.textContent = `: ${title || "no role"}${score}`;
    button.title = `${one.name}${said.textContent}`;
  });
}
