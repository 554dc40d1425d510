// One head: its life, its scores and its map at this step.
import { arrow, byId, clamp, fill, make } from "./dom.js";
import { plural, shown, thousands } from "./numbers.js";
import { data, mapOf, size } from "./data.js";
import { ramp } from "./palette.js";
import { shades } from "./shades.js";
import { get } from "./state.js";

const canvas = /** @type {HTMLCanvasElement} */ (byId("map"));
const CELL = 10;
/** @type {{ row: number, column: number } | null} */
let cell = null;

export function drawCard() {
  const { step, head } = get();
  const one = data.heads[head];
  const roles = one.roles[step].join(", ") || "no role";
  fill(byId("name"), `Head ${one.name}`, make("span", { class: "soft" }, ` · step ${thousands(data.steps[step])}: ${roles}`));
  fill(byId("life"), ...one.life.map((line) => make("li", {}, line)));
  const rows = Object.entries(one.scores).map(([name, curve]) => line(name.replaceAll("_", " "), curve, step));
  if (one.effect) rows.push(line(`effect (${data.metric})`, one.effect, step));
  fill(/** @type {HTMLElement} */ (document.querySelector("#scores tbody")), ...rows);
  drawMap();
}

/** @param {string} name @param {import("./types.js").Curve} curve @param {number} step */
function line(name, curve, step) {
  const [value, half] = [curve.mean[step], curve.half[step]];
  const ends = value === null || half === null ? "" : `${shown(value - half)} to ${shown(value + half)}`;
  return make("tr", {}, make("td", {}, name), make("td", {}, value === null ? "" : shown(value)), make("td", {}, ends), make("td", {}, curve.chance === null ? "" : shown(curve.chance)));
}

function drawMap() {
  const { step, head } = get();
  const values = mapOf(step, head);
  byId("map-part").hidden = !values;
  if (!values || !data.maps) return;
  canvas.width = canvas.height = size * CELL;
  const pixels = shades({
    values, rows: size, columns: size, colors: ramp(data.palette), factor: () => 1 / 255, root: true,
    masked: data.causal ? (at) => at % size > Math.floor(at / size) : null,
  });
  const small = new OffscreenCanvas(size, size);
  /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext("2d")).putImageData(new ImageData(pixels, size, size), 0, 0);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  if (cell) {
    context.strokeStyle = "#ffffff";
    context.lineWidth = 2;
    context.strokeRect(cell.column * CELL + 1, cell.row * CELL + 1, CELL - 2, CELL - 2);
  }
  canvas.setAttribute("aria-label", `attention of head ${data.heads[head].name} at step ${data.steps[step]}, first ${plural(size, "token")} of a text; arrow keys read cells`);
  byId("cell").textContent = cell ? said(values, cell) : "rows look at columns; colours by the square root; point at a cell to read it";
}

/** @param {Uint8Array} values @param {{ row: number, column: number }} at */
function said(values, { row, column }) {
  const { tokens } = /** @type {{ tokens: string[] }} */ (data.maps);
  const weight = data.causal && column > row ? "not allowed" : shown(Math.round(1000 * values[row * size + column] / 255) / 1000);
  return `${tokens[row]} (${row}) → ${tokens[column]} (${column}): ${weight}`;
}

export function startCard() {
  /** @param {PointerEvent} event */
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (/** @type {number} */ x, /** @type {number} */ all) => clamp(Math.floor(size * x / all), 0, size - 1);
    cell = { row: at(event.clientY - box.top, box.height), column: at(event.clientX - box.left, box.width) };
    drawMap();
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("keydown", (event) => {
    const [across, down] = arrow(event) || [0, 0];
    if (!across && !down) return;
    event.preventDefault();
    const { row, column } = cell || { row: 0, column: 0 };
    cell = { row: clamp(row + down, 0, size - 1), column: clamp(column + across, 0, size - 1) };
    drawMap();
  });
}
