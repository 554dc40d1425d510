import { failed } from "./frame.js";

let running = 0;

/**
 * Count work that is on its way, so that what waits for the page can know (`data-busy` of the root).
 * @param {Promise<unknown>} work
 */
export function track(work) {
  running++;
  document.documentElement.dataset.busy = String(running);
  work.catch(failed).finally(() => {
    running--;
    document.documentElement.dataset.busy = String(running);
  });
}
