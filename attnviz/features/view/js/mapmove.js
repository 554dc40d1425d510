import { clamp } from "./dom.js";
import { fixed } from "./numbers.js";
import { get, MOST_ZOOM, set } from "./store.js";
import { cellAt } from "./pane.js";

/** @typedef {import("./pane.js").Pane} Pane */
/** @typedef {[number, number] | null} Cell */

/** A finger that goes so many pixels to a side shows the head beside. */
const SWIPE = 48;

/**
 * Zoom so that a row and a column come first; of several maps those of the first one.
 * @param {Pane} pane
 * @param {number} factor
 * @param {number} r
 * @param {number} c
 */
function setZoom({ panel }, factor, r, c) {
  const wanted = clamp(factor, 1, MOST_ZOOM);
  const zoom = wanted <= 1.001 ? "" : [wanted, clamp(r, 0, panel.R), clamp(c, 0, panel.C)].map((value) => fixed(value, 3)).join(",");
  set({ zoom });
}

function factorNow() {
  return Number.parseFloat(get().zoom || "1");
}

/** @param {Pane} first @param {number} dr rows to move by @param {number} dc columns */
export function pan(first, dr, dc) {
  setZoom(first, factorNow(), first.g.r0 + dr, first.g.c0 + dc);
}

/**
 * Zoom so that what is under a point stays there.
 * @param {Pane} first
 * @param {Pane} pane where the point is
 * @param {number} by
 * @param {number} x
 * @param {number} y
 */
export function zoomAt(first, pane, by, x, y) {
  const { g } = pane;
  const next = clamp(factorNow() * by, 1, MOST_ZOOM);
  const real = next / factorNow();
  const [inX, inY] = [clamp(x - g.left, 0, g.plotW), clamp(y - g.top, 0, g.plotH)];
  setZoom(first, next, first.g.r0 + inY / g.ch - inY / (g.ch * real), first.g.c0 + inX / g.cw - inX / (g.cw * real));
}

/**
 * What pointers, fingers and wheels do on a map.
 * @param {HTMLElement} overlay
 * @param {() => { first: Pane, pane: Pane } | null} now the map, and the first of those beside it
 * @param {(cell: Cell) => void} point
 * @param {(cell: Cell) => void} click
 */
export function startMoving(overlay, now, point, click) {
  /** @type {Map<number, { x: number, y: number }>} */
  const fingers = new Map();
  let moved = 0;
  let began = { x: 0, y: 0 };
  /** @param {MouseEvent} event */
  const at = (event) => {
    const box = overlay.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  overlay.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, at(event));
    moved = 0;
    began = { x: event.clientX, y: event.clientY };
    if (get().zoom || fingers.size > 1) overlay.setPointerCapture(event.pointerId);
  });
  overlay.addEventListener("pointermove", (event) => {
    const maps = now();
    if (!maps) return;
    const { first, pane } = maps;
    const to = at(event);
    const before = fingers.get(event.pointerId);
    if (before && (get().zoom || fingers.size > 1)) {
      moved += Math.abs(to.x - before.x) + Math.abs(to.y - before.y);
      if (fingers.size === 2) {
        const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
        const was = Math.hypot(before.x - other.x, before.y - other.y);
        zoomAt(first, pane, Math.hypot(to.x - other.x, to.y - other.y) / Math.max(was, 1), (to.x + other.x) / 2, (to.y + other.y) / 2);
      } else pan(first, (before.y - to.y) / pane.g.ch, (before.x - to.x) / pane.g.cw);
      fingers.set(event.pointerId, to);
      return;
    }
    point(cellAt(pane, to.x, to.y));
  });
  /** @param {PointerEvent} event */
  const up = (event) => {
    fingers.delete(event.pointerId);
    const maps = now();
    const { x, y } = at(event);
    const [far, aside] = [event.clientX - began.x, Math.abs(event.clientY - began.y)];
    if (event.pointerType === "touch" && !get().zoom && Math.abs(far) > SWIPE && aside < SWIPE) {
      dispatchEvent(new CustomEvent("swiped", { detail: far < 0 ? 1 : -1 }));
    } else if (event.type === "pointerup" && moved <= 6 && maps) click(cellAt(maps.pane, x, y));
  };
  overlay.addEventListener("pointerup", up);
  overlay.addEventListener("pointercancel", up);
  // a finger that is lifted leaves too, and what it tapped stays
  overlay.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") point(null); });
  overlay.addEventListener("wheel", (event) => {
    const maps = now();
    if (!maps || (!event.ctrlKey && !event.metaKey && !get().zoom)) return;
    event.preventDefault();
    const { first, pane } = maps;
    const { x, y } = at(event);
    if (event.ctrlKey || event.metaKey) zoomAt(first, pane, Math.exp(-event.deltaY / 200), x, y);
    else pan(first, event.deltaY / pane.g.ch, event.deltaX / pane.g.cw);
  }, { passive: false });
  overlay.addEventListener("dblclick", (event) => {
    const maps = now();
    if (!maps) return;
    const { x, y } = at(event);
    if (get().zoom) set({ zoom: "" });
    else zoomAt(maps.first, maps.pane, 4, x, y);
  });
}
