import { byId, clamp, fill, make, say } from "./dom.js";
import { itemOf, kindOf } from "./data.js";
import { get, set } from "./store.js";
import { ink, led, unit } from "./colors.js";
import { inkOn, rgb } from "./palette.js";
import { fullSaid, matches, pairsTable, panelOf, weightText } from "./panel.js";
import { chosen, clicked, fromPin, pointedAt } from "./token.js";
import { caption, heading } from "./captions.js";
import { look } from "./link.js";
import { spanAt, spanColor, withPart } from "./spans.js";
import { maskedColor } from "./masked.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").Token} Token */

/** So many tokens without a space between them stay on one line. */
const MOST_JOINED = 6;
/** A sentence names what has more than this part of the largest weight. */
const LEAST_NAMED = 0.005;

/** @type {Panel | null} */
let panelNow = null;
/** The words of the text, as they stand. @type {HTMLElement[]} */
let buttons = [];
let painting = 0;
/** The word from which the pointer is dragged, and the one that it is on. @type {[HTMLElement, HTMLElement] | null} */
let dragged = null;
/** @type {Token | null} */
let over = null;
let shape = "";

/**
 * How the other words are tinted: the cell each stands for, its colour and that of its letters.
 * @param {Panel} panel
 * @param {State} state
 * @param {Token} token
 */
function tinting(panel, state, token) {
  const { layers } = panel;
  const paper = rgb(ink().paper);
  const colors = layers.map(({ color }) => rgb(color));
  /** @param {number} r */
  const units = (r) => layers.map((layer) => unit(layer, r, state.scale));
  const row = token.side === "q" ? units(token.i) : null;
  /** @param {number} other */
  return (other) => {
    const [r, c] = row ? [token.i, other] : [other, token.i];
    const cell = r * panel.C + c;
    const blocked = panel.masked?.[cell];
    if (blocked) return { cell, color: maskedColor(blocked), ink: inkOn(...rgb(maskedColor(blocked))) };
    const [red, green, blue] = led(layers, row || units(r), cell, paper, colors).map(Math.round);
    return { cell, color: `rgb(${red}, ${green}, ${blue})`, ink: inkOn(red, green, blue) };
  };
}

/** @param {Axis} axis @param {string} side @param {string} title */
function paragraph(axis, side, title) {
  const { axes } = itemOf(get());
  const data = axes[side === "k" ? kindOf(get()).keys : kindOf(get()).queries];
  /** @type {(string | HTMLElement)[]} */
  const words = [];
  axis.inline.forEach((text, i) => {
    const button = make("button", {
      type: "button", class: `word${axis.special[i] ? " special" : ""}${axis.written[i] ? " written" : ""}`, tabindex: "-1", "data-side": side, "data-at": i,
    }, make("bdi", {}, text));
    const span = spanAt(data, axis.from[i]);
    if (span >= 0) {
      button.classList.add("in-span");
      button.style.setProperty("--span", spanColor(span));
    }
    const last = words[words.length - 1];
    if (i && !axis.gaps[i] && last instanceof HTMLElement && last.childElementCount < MOST_JOINED) {
      last.append(button);
      if (last.childElementCount === MOST_JOINED) last.classList.add("loose");
    } else words.push(...(axis.gaps[i] && i ? [" "] : []), make("span", { class: axis.special[i] ? "joined loose" : "joined" }, button));
  });
  return make("div", { class: "paragraph" }, title ? make("h3", {}, title) : "", make("p", { role: "group", "aria-label": title || "the text" }, ...words));
}

/** @param {boolean} [passing] only a pointer has moved */
function paint(passing = false) {
  const panel = panelNow;
  if (!panel) return;
  const state = get();
  const token = chosen(panel, state, over);
  const same = panel.queries === panel.keys;
  const found = { q: new Set(matches(panel.queries, state.find)), k: new Set(matches(panel.keys, state.find)) };
  const focus = over || fromPin(panel, state) || { side: "q", i: 0 };
  const tint = token && tinting(panel, state, token);
  buttons.forEach((button, place) => {
    const side = place < panel.R ? "q" : "k";
    const i = side === "q" ? place : place - panel.R;
    const own = token !== null && i === token.i && (same || side === token.side);
    const tinted = token !== null && (same || side !== token.side);
    let name = (side === "q" ? panel.queries : panel.keys).spoken[i];
    if (tinted && tint) {
      const { cell, color, ink: letters } = tint(i);
      button.style.background = color;
      button.style.color = letters;
      // who is told by voice has the focus or a pin, not a pointer in passing
      if (!passing) name += `, ${panel.layers.map((_, l) => weightText(panel, l, cell)).join(", ")}`;
    } else {
      button.style.background = "";
      button.style.color = "";
    }
    if (!passing) button.setAttribute("aria-label", name);
    button.setAttribute("aria-pressed", String(own));
    button.classList.toggle("found", found[side].has(i));
    button.tabIndex = focus.i === i && (same || focus.side === side) ? 0 : -1;
  });
  byId("text-said").textContent = sentence(panel, state, token);
}

/** @param {Panel} panel @param {State} state @param {Token | null} token */
function sentence(panel, state, token) {
  if (!token) return "Point at a word, or go to it with Shift and the arrows; a click keeps it.";
  const one = token.side === "q" ? panel.queries : panel.keys;
  const others = token.side === "q" ? panel.keys : panel.queries;
  const best = panel.layers.map((layer, l) => {
    const cells = others.named.map((label, i) => ({ label, cell: token.side === "q" ? token.i * panel.C + i : i * panel.C + token.i }));
    cells.sort((a, b) => layer.data[b.cell] - layer.data[a.cell]);
    const least = layer.data[cells[0]?.cell] * LEAST_NAMED;
    const top = cells.slice(0, 4).filter(({ cell }) => layer.data[cell] > least).map(({ label, cell }) => `${label} ${weightText(panel, l, cell)}`);
    return `${layer.name}: ${top.join(", ") || "nothing"}`;
  });
  const scale = { map: "full colour: its largest weight", row: "full colour: the row's largest weight", one: `full colour: ${fullSaid(state)}` }[state.scale];
  const verbs = state.writes ? ["gets from", "writes to"] : ["attends to", "is attended to by"];
  return `${one.named[token.i]} ${verbs[token.side === "q" ? 0 : 1]} – ${best.join("; ")} (${scale})`;
}

/** What was last brought into sight. */
let brought = "";

/** Scroll a long text, and not the page, until the pinned token is in sight; once for each. @param {string} what */
function bring(what) {
  const body = byId("text-body");
  const pin = buttons.find((word) => word.getAttribute("aria-pressed") === "true");
  if (what === brought || !pin || !body.clientHeight) return;
  brought = what;
  const [box, word] = [body, pin].map((one) => one.getBoundingClientRect());
  if (word.top < box.top || word.bottom > box.bottom) body.scrollTop += word.top - box.top - (box.height - word.height) / 2;
}

/** Show what a token does that is pointed at elsewhere, or no longer. @param {Token | null} token */
export function passing(token) {
  if (!token && !over) return;
  over = token;
  paint(true);
}

export function startText() {
  const body = byId("text-body");
  /** @param {Event} event */
  const wordAt = (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    return button ? { side: button.dataset.side || "q", i: Number(button.dataset.at) } : null;
  };
  body.addEventListener("pointerover", (event) => {
    const next = wordAt(event);
    if (!next || event.pointerType !== "mouse") return;
    over = next;
    look(over, "text");
    cancelAnimationFrame(painting);
    painting = requestAnimationFrame(() => paint(true));
  });
  body.addEventListener("pointerleave", () => {
    cancelAnimationFrame(painting);
    over = null;
    look(null, "text");
    paint();
  });
  body.addEventListener("focusin", (event) => {
    if (!/** @type {HTMLElement} */ (event.target).matches(":focus-visible")) return;
    over = wordAt(event);
    look(over, "text");
    paint();
  });
  body.addEventListener("focusout", () => {
    over = null;
    look(null, "text");
    paint();
  });
  /** @param {Event} event */
  const buttonAt = (event) => /** @type {HTMLElement} */ (event.target).closest("button");
  const markDragged = () => {
    const [a, b] = dragged ? dragged.map((word) => buttons.indexOf(word)).sort((x, y) => x - y) : [0, -1];
    const several = a !== b;
    buttons.forEach((word, i) => word.classList.toggle("dragged", several && a <= i && i <= b));
  };
  body.addEventListener("pointerdown", (event) => {
    const word = event.pointerType === "mouse" && event.button === 0 ? buttonAt(event) : null;
    dragged = word && [word, word];
  });
  body.addEventListener("pointerover", (event) => {
    const word = buttonAt(event);
    if (!dragged || !word || word.dataset.side !== dragged[0].dataset.side) return;
    dragged = [dragged[0], word];
    markDragged();
  });
  addEventListener("pointerup", () => {
    const words = dragged;
    dragged = null;
    markDragged();
    if (!words || words[0] === words[1] || !panelNow) return;
    const axis = words[0].dataset.side === "q" ? panelNow.queries : panelNow.keys;
    const [first, last] = words.map((word) => Number(word.dataset.at)).sort((x, y) => x - y);
    set({ spans: withPart(get().spans, `${axis.from[first]}-${axis.to[last] - 1}`) });
  });
  body.addEventListener("click", (event) => {
    const word = wordAt(event);
    if (!word || !panelNow) return;
    set(clicked(panelNow, get(), word));
  });
}

/** @type {import("./types.js").View} */
export const textView = {
  draw(state) {
    const panel = panelOf(state, state.on);
    const empty = !panel.R || !panel.C;
    byId("text-empty").hidden = !empty;
    byId("text-body").hidden = empty;
    caption("text-caption", panel, state);
    panelNow = empty ? null : panel;
    over = null;
    const key = JSON.stringify([state.text, state.kind, state.words, state.separators, state.first, state.quad]);
    if (!empty && key !== shape) {
      shape = key;
      const body = byId("text-body");
      const { queries, keys } = panel;
      if (queries === keys) fill(body, paragraph(queries, "q", ""));
      else {
        const cross = kindOf(state).kind === "cross";
        fill(body, paragraph(queries, "q", cross ? "Queries (attending)" : `Queries, sentence ${state.quad[0]}`),
          paragraph(keys, "k", cross ? "Keys (attended to)" : `Keys, sentence ${state.quad[1]}`));
      }
      buttons = [...body.querySelectorAll("button")];
    }
    byId("text-direction").hidden = !empty && panel.queries !== panel.keys;
    paint();
    bring(`${shape} ${state.pin}`);
  },
  picture(painter, state) {
    const panel = panelOf(state, state.on);
    const token = chosen(panel, state, over);
    const tint = token && tinting(panel, state, token);
    const tones = ink();
    const [WIDE, SIZE, LINE] = [760, 15, 27];
    let y = 66;
    /** @param {Axis} axis @param {string} side */
    const flow = (axis, side) => {
      let x = 12;
      axis.inline.forEach((text, i) => {
        const w = painter.measure(text, SIZE) + 4;
        if (axis.gaps[i] && i) x += 5;
        if (x + w > WIDE - 12) {
          x = 12;
          y += LINE;
        }
        const tinted = token && (panel.queries === panel.keys || side !== token.side);
        const made = tinted && tint ? tint(i) : null;
        if (made) painter.rect(x, y - 11, w, 22, made.color);
        const own = token && i === token.i && (panel.queries === panel.keys || side === token.side);
        if (own) painter.rect(x, y + 11, w, 2, tones.mark);
        else if (axis.written[i]) painter.rect(x, y + 11, w, 1, tones.soft);
        painter.text(text, x + 2, y, { size: SIZE, color: made ? made.ink : axis.special[i] ? tones.soft : tones.text });
        x += w;
      });
      y += LINE + 10;
    };
    flow(panel.queries, "q");
    if (panel.queries !== panel.keys) flow(panel.keys, "k");
    for (const part of sentence(panel, state, token).split("; ")) {
      painter.text(part, 12, y, { size: 11, color: tones.soft });
      y += 16;
    }
    return heading(painter, panel, state, WIDE, y + 6);
  },
  numbers: pairsTable,
  pointed: () => pointedAt(panelNow, get(), over),
  focus: () => buttons.find(({ tabIndex }) => tabIndex === 0) || null,
  step(dx, dy) {
    if (!panelNow) return;
    const now = chosen(panelNow, get(), over);
    const same = panelNow.queries === panelNow.keys;
    const side = !now ? "q" : same || !dy ? now.side : dy < 0 ? "q" : "k";
    const axis = side === "q" ? panelNow.queries : panelNow.keys;
    const i = clamp(now ? now.i + dx + (same ? dy : 0) : 0, 0, axis.at.length - 1);
    set({ pin: (same ? "q" : side) + axis.from[i] });
    requestAnimationFrame(() => say(byId("text-said").textContent || ""));
  },
};
