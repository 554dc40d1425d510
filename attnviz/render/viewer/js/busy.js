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

/**
 * Say in the bar on top what could not be done; nothing clears it. The next drawing does, too.
 * @param {string} text
 */
export function tell(text) {
  const place = document.getElementById("failure");
  if (!place) return;
  place.hidden = !text;
  place.textContent = text;
}

/** @param {unknown} error */
export function failed(error) {
  tell(`This page could not be drawn: ${error instanceof Error ? error.message : error}`);
  console.error(error);
}
