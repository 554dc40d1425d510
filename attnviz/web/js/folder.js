/**
 * Where a head is shown row by row over many texts, on another page of this folder; empty where
 * there is none.
 * @param {string} name
 */
export function rowsOf(name) {
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("#folder a[data-head]"));
  return [...links].find((link) => link.dataset.head === name)?.getAttribute("href") || "";
}
