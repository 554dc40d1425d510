import { scheme } from "./palette.js";

/** What cells are called whose query may not attend to their key. */
export const NOT_ALLOWED = "not allowed";

const COLORS = { light: "#d9d9d9", dark: "#3c4048" };

/** The colour of cells whose query may not attend to their key, the same in every page, as `--masked`. */
export function maskedColor() {
  return COLORS[scheme()];
}

/**
 * Whether a key so far back may be attended to.
 * @param {{ causal: boolean, window: number | null }} reach
 * @param {number} back from the query; less than 0 is after it
 */
export function reaches({ causal, window }, back) {
  return (!causal || back >= 0) && (window === null || Math.abs(back) < window);
}
