import { clamp } from "./dom.js";

/** @typedef {import("./drawing.js").Painter} Painter */
/** @typedef {import("./drawing.js").TextStyle} TextStyle */

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";

/** How much larger letters and cells are on very wide screens. */
export function magnified() {
  return innerWidth >= 2200 ? 1.45 : 1;
}

/** @param {number} size @param {number} [weight] */
function font(size, weight = 400) {
  return `${weight} ${size}px ${FONT}`;
}

/** A painter for a canvas. @param {CanvasRenderingContext2D} context in CSS pixels @returns {Painter} */
export function canvasPainter(context) {
  return {
    rect(x, y, w, h, fill, opacity = 1) {
      context.globalAlpha = opacity;
      context.fillStyle = fill;
      context.fillRect(x, y, w, h);
      context.globalAlpha = 1;
    },
    dot(x, y, radius, fill, opacity = 1) {
      context.globalAlpha = opacity;
      context.fillStyle = fill;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
      context.globalAlpha = 1;
    },
    line(x1, y1, x2, y2, color, width, opacity = 1) {
      context.globalAlpha = opacity;
      context.strokeStyle = color;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
      context.stroke();
      context.globalAlpha = 1;
    },
    curve(x1, y1, x2, y2, color, width, opacity) {
      const third = (x2 - x1) * 0.4;
      context.globalAlpha = clamp(opacity, 0, 1);
      context.strokeStyle = color;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x1, y1);
      context.bezierCurveTo(x1 + third, y1, x2 - third, y2, x2, y2);
      context.stroke();
      context.globalAlpha = 1;
    },
    text(text, x, y, { size, color, align = "left", weight = 400, turn = false }) {
      context.font = font(size, weight);
      context.fillStyle = color;
      context.textAlign = align;
      context.textBaseline = "middle";
      if (!turn) {
        context.fillText(text, x, y);
        return;
      }
      context.save();
      context.translate(x, y);
      context.rotate(-Math.PI / 2);
      context.fillText(text, 0, 0);
      context.restore();
    },
    image(colors, rows, columns, x, y, w, h) {
      if (!rows || !columns) return;
      const small = new OffscreenCanvas(columns, rows);
      const inner = /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext("2d"));
      inner.putImageData(new ImageData(new Uint8ClampedArray(colors), columns, rows), 0, 0);
      // a map that is shrunk keeps what is between the pixels; cells of a larger one stay square
      context.imageSmoothingEnabled = columns > w * context.getTransform().a;
      context.drawImage(small, x, y, w, h);
    },
    path(d, x, y, { fill, stroke, width = 1, dash = [], filled = 1, stroked = 1 }) {
      const path = new Path2D(d);
      context.save();
      context.translate(x, y);
      context.globalAlpha = filled;
      context.fillStyle = fill || "";
      if (fill) context.fill(path);
      context.globalAlpha = stroked;
      context.strokeStyle = stroke || "";
      context.lineWidth = width;
      context.setLineDash(dash);
      if (stroke) context.stroke(path);
      context.restore();
    },
    picture(drawn, x, y, w, h) {
      context.imageSmoothingEnabled = true;
      context.drawImage(drawn, x, y, w, h);
    },
    measure(text, size, weight) {
      context.font = font(size, weight);
      return context.measureText(text).width;
    },
  };
}

/**
 * The same painter with another origin.
 * @param {Painter} painter
 * @param {number} dx
 * @param {number} dy
 * @returns {Painter}
 */
export function shifted(painter, dx, dy) {
  return {
    rect: (x, y, w, h, fill, opacity) => painter.rect(x + dx, y + dy, w, h, fill, opacity),
    line: (x1, y1, x2, y2, color, width, opacity) => painter.line(x1 + dx, y1 + dy, x2 + dx, y2 + dy, color, width, opacity),
    curve: (x1, y1, x2, y2, color, width, opacity) => painter.curve(x1 + dx, y1 + dy, x2 + dx, y2 + dy, color, width, opacity),
    text: (text, x, y, style) => painter.text(text, x + dx, y + dy, style),
    dot: (x, y, radius, fill, opacity) => painter.dot(x + dx, y + dy, radius, fill, opacity),
    image: (colors, rows, columns, x, y, w, h) => painter.image(colors, rows, columns, x + dx, y + dy, w, h),
    path: (d, x, y, style) => painter.path(d, x + dx, y + dy, style),
    picture: (drawn, x, y, w, h) => painter.picture(drawn, x + dx, y + dy, w, h),
    measure: painter.measure,
  };
}

/**
 * A drawing without what stands at its top, for where that is said already; what is drawn there has to be cut off.
 * @param {(painter: Painter) => { width: number, height: number }} picture
 * @param {number} top in pixels
 */
export function untitled(picture, top) {
  return (/** @type {Painter} */ painter) => {
    const { width, height } = picture(shifted(painter, 0, -top));
    return { width, height: height - top };
  };
}

/** @param {number} value */
function short(value) {
  return String(Math.round(value * 100) / 100);
}

/** @param {string} text */
function escaped(text) {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

/**
 * A painter that writes SVG: everything stays a vector, and a map is one path for each colour.
 * @returns {Painter & { finish(width: number, height: number, paper: string, title: string, made: string): string }}
 */
export function svgPainter() {
  /** @type {string[]} */
  const out = [];
  const ruler = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  return {
    rect(x, y, w, h, fill, opacity = 1) {
      const faint = opacity < 1 ? ` fill-opacity="${short(opacity)}"` : "";
      out.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" fill="${fill}"${faint}/>`);
    },
    dot(x, y, radius, fill, opacity = 1) {
      const faint = opacity < 1 ? ` fill-opacity="${short(opacity)}"` : "";
      out.push(`<circle cx="${short(x)}" cy="${short(y)}" r="${short(radius)}" fill="${fill}"${faint}/>`);
    },
    line(x1, y1, x2, y2, color, width, opacity = 1) {
      const faint = opacity < 1 ? ` stroke-opacity="${short(opacity)}"` : "";
      out.push(`<line x1="${short(x1)}" y1="${short(y1)}" x2="${short(x2)}" y2="${short(y2)}" stroke="${color}" stroke-width="${short(width)}"${faint}/>`);
    },
    curve(x1, y1, x2, y2, color, width, opacity) {
      const third = (x2 - x1) * 0.4;
      const path = `M${short(x1)} ${short(y1)}C${short(x1 + third)} ${short(y1)} ${short(x2 - third)} ${short(y2)} ${short(x2)} ${short(y2)}`;
      out.push(`<path class="w" d="${path}" fill="none" stroke="${color}" stroke-width="${short(width)}" stroke-opacity="${Number(clamp(opacity, 0, 1).toFixed(4))}"/>`);
    },
    text(text, x, y, { size, color, align = "left", weight = 400, turn = false }) {
      const anchor = { left: "start", center: "middle", right: "end" }[align];
      const turned = turn ? ` transform="rotate(-90 ${short(x)} ${short(y)})"` : "";
      const bold = weight === 400 ? "" : ` font-weight="${weight}"`;
      out.push(`<text x="${short(x)}" y="${short(y)}" font-size="${short(size)}" fill="${color}" text-anchor="${anchor}" dominant-baseline="central"${bold}${turned}>${escaped(text)}</text>`);
    },
    image(colors, rows, columns, x, y, w, h) {
      /** @type {Map<string, string[]>} */
      const paths = new Map();
      for (let r = 0; r < rows; r++) {
        for (let c = 0; c < columns;) {
          const i = 4 * (r * columns + c);
          let end = c + 1;
          while (end < columns && [0, 1, 2].every((k) => colors[4 * (r * columns + end) + k] === colors[i + k])) end++;
          const color = `#${[0, 1, 2].map((k) => colors[i + k].toString(16).padStart(2, "0")).join("")}`;
          const path = paths.get(color) || [];
          path.push(`M${c} ${r}h${end - c}v1h${c - end}z`);
          paths.set(color, path);
          c = end;
        }
      }
      out.push(`<g class="map" data-rows="${rows}" data-columns="${columns}" shape-rendering="crispEdges" transform="translate(${short(x)} ${short(y)}) scale(${w / columns} ${h / rows})">`);
      for (const [color, path] of paths) out.push(`<path fill="${color}" d="${path.join("")}"/>`);
      out.push("</g>");
    },
    path(d, x, y, { fill, stroke, width = 1, dash = [], filled = 1, stroked = 1 }) {
      const ink = fill ? ` fill="${fill}" fill-opacity="${short(filled)}"` : ' fill="none"';
      const line = stroke ? ` stroke="${stroke}" stroke-width="${short(width)}" stroke-opacity="${short(stroked)}"${dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : ""}` : "";
      out.push(`<path d="${escaped(d)}" transform="translate(${short(x)} ${short(y)})"${ink}${line}/>`);
    },
    picture(drawn, x, y, w, h) {
      out.push(`<image href="${drawn.toDataURL("image/png")}" x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"/>`);
    },
    measure(text, size, weight) {
      ruler.font = font(size, weight);
      return ruler.measureText(text).width;
    },
    finish(width, height, paper, title, made) {
      const [w, h] = [Math.ceil(width), Math.ceil(height)];
      return `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" font-family="${escaped(FONT)}">\n<title>${escaped(title)}</title>\n<desc>${escaped(made)}</desc>\n<rect width="${w}" height="${h}" fill="${paper}"/>\n${out.join("\n")}\n</svg>\n`;
    },
  };
}

/**
 * Fit a canvas to a size in CSS pixels and give its painter.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {Painter}
 */
export function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return canvasPainter(context);
}

/**
 * A text cut to a width, with an ellipsis where it was cut.
 * @param {Painter} painter
 * @param {string} text
 * @param {number} width
 * @param {number} size
 * @param {number} [weight]
 */
export function fitted(painter, text, width, size, weight) {
  if (painter.measure(text, size, weight) <= width) return text;
  const parts = [...text];
  let [low, high] = [0, parts.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (painter.measure(`${parts.slice(0, middle).join("")}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${parts.slice(0, low).join("")}…`;
}

/**
 * Words in lines that are no wider than a width; a word that is wider is cut up.
 * @param {Painter} painter
 * @param {string} text
 * @param {number} width
 * @param {number} size
 * @param {number} [weight]
 */
export function broken(painter, text, width, size, weight) {
  /** @type {string[]} */
  const lines = [];
  let line = "";
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const longer = line ? `${line} ${word}` : word;
    if (painter.measure(longer, size, weight) <= width) {
      line = longer;
      continue;
    }
    if (line) lines.push(line);
    line = "";
    for (const sign of word) {
      if (line && painter.measure(line + sign, size, weight) > width) {
        lines.push(line);
        line = sign;
      } else line += sign;
    }
  }
  return line ? [...lines, line] : lines;
}
