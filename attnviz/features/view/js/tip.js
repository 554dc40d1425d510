import { byId, chip, clamp, fill, make } from "./dom.js";

/**
 * The box beside the pointer.
 * @param {string} title
 * @param {{ color: string, text: string, more?: string }[]} lines
 * @param {number} x in the window
 * @param {number} y
 * @param {HTMLElement | null} [drawn] below them
 */
export function showTip(title, lines, x, y, drawn) {
  const box = byId("tip");
  fill(box, make("div", { class: "tip-title" }, title), ...lines.map(({ color, text, more }) => make("div", {},
    color ? chip(color) : "", make("strong", {}, text), more ? make("span", { class: "tip-more" }, ` ${more}`) : "")), drawn || "");
  box.hidden = false;
  const { offsetWidth: w, offsetHeight: h } = box;
  box.style.left = `${clamp(x + w > innerWidth - 6 ? x - w - 24 : x, 4, Math.max(4, innerWidth - w - 4))}px`;
  box.style.top = `${clamp(y + h > innerHeight - 6 ? y - h - 24 : y, 4, Math.max(4, innerHeight - h - 4))}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
}
