/** Whether the page's colours are those on a dark ground; paper is light. */
export function isDark() {
  const { print, theme } = document.documentElement.dataset;
  if (print !== undefined) return false;
  if (theme === "dark" || theme === "light") return theme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Which of the colours are in use. @returns {"light" | "dark"} */
export function scheme() {
  return isDark() ? "dark" : "light";
}

/** @param {string} color `#rrggbb` @returns {[number, number, number]} */
export function rgb(color) {
  const value = Number.parseInt(color.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/**
 * A palette's 256 colours between its points, as bytes r, g, b.
 * @param {string[]} palette at least two colours `#rrggbb`
 */
export function ramp(palette) {
  const points = palette.map(rgb);
  const found = new Uint8ClampedArray(768);
  for (let step = 0; step < 256; step++) {
    const place = (step / 255) * (points.length - 1);
    const left = Math.min(Math.trunc(place), points.length - 2);
    for (let i = 0; i < 3; i++) {
      const [a, b] = [points[left][i], points[left + 1][i]];
      found[3 * step + i] = Math.round(a + (b - a) * (place - left));
    }
  }
  return found;
}

/**
 * The nearest of a palette's points for a weight, by its square root, so that small ones show.
 * @param {string[]} palette
 * @param {number} share of what counts as full, cut to 0 and 1
 */
export function rootColor(palette, share) {
  return palette[Math.round(Math.sqrt(Math.min(1, Math.max(0, share))) * (palette.length - 1))];
}

/** Black or white, whichever reads better on a colour. @param {number} r @param {number} g @param {number} b */
export function inkOn(r, g, b) {
  const [x, y, z] = [r, g, b].map((part) => {
    const c = part / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * x + 0.7152 * y + 0.0722 * z;
  return (light + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff";
}

/** A colour as a ground, and an ink that reads on it. @param {number[]} color bytes r, g, b */
export function readable([r, g, b]) {
  const ground = `#${[r, g, b].map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
  return { ground, ink: inkOn(r, g, b) };
}

/** The colours of the page under some names. @param {...string} names */
export function tones(...names) {
  const style = getComputedStyle(document.documentElement);
  return names.map((name) => style.getPropertyValue(name).trim());
}
