import { factsOf } from "./facts.js";
import { label } from "./headmap.js";
import { filed } from "./numbers.js";
import { paintMap } from "./mapfigure.js";
import { isMasked, picture } from "./shade.js";
import { stageHeadline } from "./stage.js";
import { get, page } from "./store.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./drawing.js").Painter} Painter */

const SIDE = 420;
const TOP = 48;

/** The maps of the head that is shown, with and without what is off. @param {Answer} answer */
function passes({ before, after }) {
  const [layer, head] = get().head.split(".").map(Number);
  return { head, maps: [before[layer], ...(after ? [after[layer]] : [])] };
}

/** The head that is shown, for saving. @param {Painter} painter @param {Answer | null} answer */
export function drawWhole(painter, answer) {
  const style = getComputedStyle(document.documentElement);
  const [text, soft] = ["--text", "--soft"].map((name) => style.getPropertyValue(name).trim());
  painter.text(`Head ${get().head}`, 12, 18, { size: 14, weight: 600, color: text });
  if (!answer) return { width: 200, height: TOP };
  const { head, maps } = passes(answer);
  const names = answer.ids.map(label);
  let [x, high] = [12, 0];
  for (const [n, map] of maps.entries()) {
    const pixels = picture(map, head, names.length);
    painter.text(n ? `without ${[...get().off].join(", ")}` : "as it is", x, 36, { size: 11, color: soft });
    const size = paintMap(painter, { rows: names.length, columns: names.length, pixels, queries: names, keys: names, side: SIDE, marked: answer.at }, x, TOP);
    x += size.width + 24;
    high = Math.max(high, TOP + size.height);
  }
  const legend = `queries downwards, keys across; colours by the square root of the weight, from 0 to 1${page.causal ? "; grey: not allowed" : ""}`;
  painter.text(legend, 12, high + 16, { size: 11, color: soft });
  return { width: Math.max(x, 24 + painter.measure(legend, 11)), height: high + 30 };
}

/** What a card says of it. @param {Answer | null} answer */
export function headline(answer) {
  const { head, off } = get();
  const without = answer?.after && off.size ? `, with and without ${[...off].join(", ")}` : `: ${factsOf(head).said}`;
  return stageHeadline() || `Head ${head} of ${page.model}${without}`;
}

/** The weights of the head that is shown, a line a cell. @param {Answer | null} answer */
export function* cells(answer) {
  yield ["query_index", "query", "key_index", "key", "weight", "without", "allowed"];
  if (!answer) return;
  const { head, maps } = passes(answer);
  const count = answer.ids.length;
  for (let cell = 0; cell < count * count; cell++) {
    const [t, s] = [Math.trunc(cell / count), cell % count];
    const masked = isMasked(t, s);
    const weights = maps.map((map) => map[head * count * count + cell]);
    const values = weights.map((weight) => (masked && !weight ? "" : filed(weight)));
    yield [String(t), label(answer.ids[t]), String(s), label(answer.ids[s]), values[0], values[1] ?? "", masked ? "0" : "1"];
  }
}
