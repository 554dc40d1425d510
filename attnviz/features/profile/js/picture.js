import { data, said } from "./data.js";
import { fixed, wholePercent } from "./numbers.js";
import { tones } from "./palette.js";
import { get } from "./state.js";
import { fitted } from "./painter.js";

const [LEFT, LINE, WIDE, BAR] = [14, 20, 620, 220];

/** The rules of the head that is shown, and what its tenths wrote. @param {import("./drawing.js").Painter} painter */
export function drawWhole(painter) {
  const head = data.heads.find(({ name }) => name === get().head) || data.heads[0];
  const [text, soft, strong] = tones("--text", "--soft", "--strong");
  painter.text(`${data.title}: ${head.name}`, LEFT, 18, { size: 15, weight: 650, color: text });
  let y = 46;
  const bar = (/** @type {string} */ name, /** @type {number} */ share, /** @type {string} */ value) => {
    painter.text(fitted(painter, name, 270, 12), LEFT + 276, y, { size: 12, color: text, align: "right" });
    painter.rect(LEFT + 284, y - 6, Math.max(share * BAR, 0.5), 12, strong);
    painter.text(value, LEFT + 290 + share * BAR, y, { size: 12, color: text });
    y += LINE;
  };
  painter.text("share of rows by rule, on texts that rules were not found on", LEFT, y, { size: 12, color: soft });
  y += LINE;
  for (const [name, [value]] of Object.entries(head.shares)) bar(said(name), value || 0, wholePercent(value || 0));
  bar("by no rule", head.unexplained[0] || 0, wholePercent(head.unexplained[0] || 0));
  y += LINE;
  const by = get().by;
  painter.text(`share of what it wrote${by === "effect" ? " in the rows drawn" : ""}, by tenths of the ${data.said.criteria[by]}`, LEFT, y, { size: 12, color: soft });
  y += LINE;
  for (const [low, high, , written] of head.deciles[by] || []) bar(`${fixed(low, 3)} to ${fixed(high, 3)}`, written || 0, wholePercent(written || 0));
  painter.text(fitted(painter, data.closing, WIDE, 11), LEFT, y + LINE, { size: 11, color: soft });
  return { width: WIDE + 2 * LEFT, height: y + 2 * LINE };
}
