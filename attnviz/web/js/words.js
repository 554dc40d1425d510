import { byId, fill, make } from "./dom.js";

/** What marks an element as a term; every name stands here as a text, for the help has its definition. @param {string} name */
export function term(name) {
  return { "data-term": name };
}

/** The element whose term is shown. @type {HTMLElement | null} */
let shown = null;

/** @param {EventTarget | null} target */
function marked(target) {
  return target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest("[data-term]")) : null;
}

/** @param {HTMLElement | null} element */
function show(element) {
  if (element === shown) return;
  const tip = byId("word");
  shown?.removeAttribute("aria-describedby");
  shown = element;
  tip.hidden = !element;
  if (!element) return;
  const word = document.querySelector(`[data-word="${element.dataset.term}"]`);
  fill(tip, make("strong", {}, word?.textContent || ""), make("span", {}, ...[...word?.nextElementSibling?.childNodes || []].map((node) => node.cloneNode(true))));
  element.setAttribute("aria-describedby", "word");
  placeBeside(tip, element);
}

/** Below what it explains, or above where there is no room. @param {HTMLElement} tip @param {HTMLElement} element */
export function placeBeside(tip, element) {
  const box = element.getBoundingClientRect();
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - wide - 8))}px`;
  tip.style.top = `${box.bottom + 6 + high > innerHeight && box.top > high + 6 ? box.top - high - 6 : box.bottom + 6}px`;
}

/** Whatever is marked as a term says what it means: pointed at, focused or tapped; Escape hides it. */
export function startWords() {
  document.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") show(marked(event.target)); });
  document.addEventListener("focusin", (event) => show(marked(event.target)));
  document.addEventListener("focusout", () => show(null));
  document.addEventListener("click", (event) => show(marked(event.target)));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });
  addEventListener("scroll", () => (shown && (shown === document.activeElement || shown.matches(":hover")) ? placeBeside(byId("word"), shown) : show(null)), { passive: true, capture: true });
}
