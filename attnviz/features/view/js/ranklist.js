import { byId, chip, make } from "./dom.js";
import { roleOf, signOf } from "./data.js";
import { get, set } from "./store.js";

/**
 * A head of a ranking: a bar for its share, the colour of its role, its name, and what is said of it.
 * @param {import("./types.js").Head} head
 * @param {number} part of the longest bar
 * @param {string} title
 * @param {string} label for who cannot see it
 * @param {...(string | Node)} said
 */
export function entry(head, part, title, label, ...said) {
  const bar = make("span", { class: "who-part" });
  bar.style.width = `${100 * part}%`;
  return make("li", {}, make("button", { type: "button", "data-head": head.id, title, "aria-label": label },
    bar, chip(roleOf.get(signOf(head))?.color), make("strong", {}, head.name), ...said));
}

/** Mark the head that is shown in a ranking. @param {string} list */
export function markCurrent(list) {
  for (const button of byId(list).querySelectorAll("button")) {
    if (button.dataset.head === get().head) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

/** Show the head of a ranking that is clicked. @param {string} list @param {() => Partial<import("./types.js").State>} [more] what else is set then */
export function startRanking(list, more = () => ({})) {
  byId(list).addEventListener("click", (event) => {
    const id = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.head;
    if (!id) return;
    const { view } = get();
    set({ head: id, on: [id], view: view === "overview" ? "map" : view, ...more() });
  });
}
