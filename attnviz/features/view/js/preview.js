import { byId, capital, chip, clamp, fill, make } from "./dom.js";
import { headOf, isLoaded, roleOf } from "./data.js";
import { get } from "./store.js";
import { prepared } from "./painter.js";
import { tile } from "./tiles.js";
import { valueSaid } from "./tints.js";

const PREVIEW = 224;

/**
 * Show a head large, beside where it stands.
 * @param {string} id
 * @param {any} place an element, or whatever else knows its rectangle on the screen
 * @param {string} [more] what else is said of it
 */
export function preview(id, place, more = "") {
  const state = get();
  const head = headOf(state, id);
  if (!head || !isLoaded(head.site)) return;
  const box = byId("preview");
  const canvas = /** @type {HTMLCanvasElement} */ (byId("preview-map"));
  const { colors, R, C } = tile(state, head, PREVIEW * (devicePixelRatio || 1));
  prepared(canvas, PREVIEW, PREVIEW).image(colors, R, C, 0, 0, PREVIEW, PREVIEW);
  fill(byId("preview-name"), make("strong", {}, capital(head.title)));
  const lines = head.data.roles.map(({ name, said }) => make("div", {}, chip(roleOf.get(name)?.color), said));
  fill(byId("preview-roles"), ...(lines.length ? lines : ["no role"]), make("div", {}, valueSaid(state, head)), make("div", {}, more));
  box.hidden = false;
  const at = place.getBoundingClientRect();
  const left = at.right + 12 + PREVIEW + 20 < innerWidth ? at.right + 12 : at.left - PREVIEW - 34;
  box.style.left = `${clamp(left, 4, Math.max(4, innerWidth - PREVIEW - 26))}px`;
  box.style.top = `${clamp(at.top - 40, 4, Math.max(4, innerHeight - box.offsetHeight - 4))}px`;
}

export function hidePreview() {
  byId("preview").hidden = true;
}
