/** @typedef {import("./drawing.js").Painter} Painter */

/**
 * An SVG element; text goes in as text only.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The outline of a shape as a path. @param {Element} shape */
function outline(shape) {
  const [x, y, w, h, rx, cx, cy, r, x1, y1, x2, y2] = ["x", "y", "width", "height", "rx", "cx", "cy", "r", "x1", "y1", "x2", "y2"].map((name) => Number(shape.getAttribute(name)) || 0);
  const c = Math.min(rx, w / 2, h / 2);
  const points = shape.getAttribute("points") || "";
  return {
    path: shape.getAttribute("d") || "",
    line: `M${x1} ${y1}L${x2} ${y2}`,
    polyline: points && `M${points}`,
    polygon: points && `M${points}Z`,
    circle: `M${cx - r} ${cy}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
    rect: `M${x + c} ${y}h${w - 2 * c}a${c} ${c} 0 0 1 ${c} ${c}v${h - 2 * c}a${c} ${c} 0 0 1 ${-c} ${c}h${2 * c - w}a${c} ${c} 0 0 1 ${-c} ${-c}v${2 * c - h}a${c} ${c} 0 0 1 ${c} ${-c}Z`,
  }[shape.tagName] || "";
}

/** The point of an arrow where a path ends, as its marker draws it. @param {SVGGeometryElement} path */
function tip(path) {
  const long = path.getTotalLength();
  const [end, before] = [path.getPointAtLength(long), path.getPointAtLength(long - 1)];
  const [dx, dy] = [6 * (end.x - before.x), 6 * (end.y - before.y)];
  return `M${end.x + dx} ${end.y + dy}L${end.x - dx - dy} ${end.y - dy + dx}L${end.x - dx + dy} ${end.y - dy - dx}Z`;
}

/**
 * An SVG element of the page as a painter draws it, in the colours that the page's style gives it now.
 * @param {Painter} painter
 * @param {SVGSVGElement} svg
 */
export function paintSvg(painter, svg) {
  const color = (/** @type {string} */ name) => (name === "none" || /, 0\)$|^transparent$/.test(name) ? "" : name);
  for (const shape of svg.querySelectorAll("*")) {
    if (shape.closest("defs, marker")) continue;
    const style = getComputedStyle(shape);
    const whole = Number(style.opacity);
    if (shape.tagName === "text") {
      const size = parseFloat(style.fontSize);
      const [x, y] = ["x", "y"].map((name) => Number(shape.getAttribute(name)));
      const align = /** @type {const} */ ({ middle: "center", end: "right" })[style.textAnchor] || "left";
      painter.text(shape.textContent || "", x, style.dominantBaseline === "central" ? y : y - 0.35 * size, { size, color: style.fill, align, weight: Number(style.fontWeight) });
      continue;
    }
    const d = outline(shape);
    const stroke = color(style.stroke);
    const dash = style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[ ,]+/).map(parseFloat);
    if (d) painter.path(d, 0, 0, { fill: color(style.fill), filled: whole * Number(style.fillOpacity), stroke, stroked: whole * Number(style.strokeOpacity), width: parseFloat(style.strokeWidth), dash });
    if (d && style.markerEnd && style.markerEnd !== "none") painter.path(tip(/** @type {SVGGeometryElement} */ (shape)), 0, 0, { fill: stroke, filled: whole });
  }
  const { width, height } = svg.viewBox.baseVal;
  return { width, height };
}
