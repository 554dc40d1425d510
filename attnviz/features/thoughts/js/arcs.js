import { draw } from "./svg.js";

/**
 * Arcs on the left of a trace, from each sentence to those that it needs.
 * @param {[number, number][][]} feeds of each sentence the earlier ones and how far it moves without them
 * @param {number[]} middles of the rows, in pixels
 * @param {number} wide
 * @param {number | null} chosen alone, where one is
 */
export function arcs(feeds, middles, wide, chosen) {
  const svg = draw("svg", { width: wide, height: "100%" });
  const most = Math.max(...feeds.flat().map(([, effect]) => effect), 1e-9);
  const far = Math.max(...feeds.flatMap((some, later) => some.map(([earlier]) => later - earlier)), 1);
  feeds.forEach((some, later) => some.forEach(([earlier, effect], place) => {
    const mine = chosen === null ? place === 0 : later === chosen || earlier === chosen;
    if (!mine) return;
    const left = wide - 4 - (wide - 8) * Math.sqrt((later - earlier) / far);
    const [above, below] = [middles[earlier], middles[later]];
    const path = `M ${wide - 2} ${below} C ${left} ${below} ${left} ${above} ${wide - 2} ${above}`;
    svg.append(draw("path", { d: path, opacity: 0.25 + (0.75 * effect) / most }));
  }));
  return svg;
}
