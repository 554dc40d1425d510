import { scheme } from "./palette.js";

/** What cells are called whose query may not attend to their key. */
export const NOT_ALLOWED = "not allowed";

/** What cells are called whose key an indexer did not select. */
export const NOT_SELECTED = "not selected";

const COLORS = { light: "#d9d9d9", dark: "#3c4048" };
const UNSELECTED = { light: "#e3b7d8", dark: "#6b4a63" };

/** What a masked cell holds: a key that is not allowed, or one that was not selected. */
export const MASKED = { allowed: 1, selected: 2 };

/** What a masked cell is called. @param {number} kind one of `MASKED` */
export function maskedText(kind) {
  return kind === MASKED.selected ? NOT_SELECTED : NOT_ALLOWED;
}

/**
 * The colour of cells whose query may not attend to their key, the same in every page, as `--masked`;
 * or of those that an indexer did not select.
 * @param {number} [kind] one of `MASKED`
 */
export function maskedColor(kind = MASKED.allowed) {
  return (kind === MASKED.selected ? UNSELECTED : COLORS)[scheme()];
}

/**
 * Whether a key so far back may be attended to.
 * @param {{ causal: boolean, window: number | null }} reach
 * @param {number} back from the query; less than 0 is after it
 */
export function reaches({ causal, window }, back) {
  return (!causal || back >= 0) && (window === null || Math.abs(back) < window);
}
