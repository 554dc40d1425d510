import { byId } from "./dom.js";
import { inflate } from "./inflate.js";
import { isDark, rgb } from "./palette.js";

/** @type {import("./types.js").Data} */
export const data = JSON.parse(byId("data").textContent || "");
export const count = data.steps.length;
export const size = data.maps?.tokens.length || 0;

/** The maps, once they are unpacked: [steps, heads, size, size] in 255ths. @type {Uint8Array | null} */
let maps = null;

export async function unpack() {
  if (data.maps) maps = await inflate(data.maps.data);
}

/** The map of a head at a step, or null. @param {number} step @param {number} head */
export function mapOf(step, head) {
  const cells = size * size;
  const first = (step * data.heads.length + head) * cells;
  return maps && maps.subarray(first, first + cells);
}

/** The colour of a role's curves, lighter on a dark ground. @param {string} name */
export function colorOf(name) {
  const color = data.roles[name]?.color || "#7d8590";
  const share = isDark() ? 0.35 : 0;
  return `rgb(${rgb(color).map((part) => Math.round(part + share * (255 - part))).join(" ")})`;
}

/** Where a step stands, from 0 to 1: as it is, or by its logarithm where most checkpoints are early. @param {number} step */
export function share(step) {
  const [first, last] = [data.steps[0], data.steps[count - 1]];
  if (data.steps[count >> 1] - first >= 0.1 * (last - first)) return (step - first) / (last - first);
  const unit = data.steps.find((one) => one > 0) || 1;
  const log = (/** @type {number} */ at) => Math.log10(1 + at / unit);
  return (log(step) - log(first)) / (log(last) - log(first));
}
