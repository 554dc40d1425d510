import { byId, capital, fill, make } from "./dom.js";
import { fixed, plural, shown, times } from "./numbers.js";
import { described, headOf, itemOf, kindOf, page, roleOf, several, titleOf } from "./data.js";
import { ink } from "./colors.js";
import { get, set, viewsOf } from "./store.js";
import { mixOf, nounOf, panelOf, saidOf, weightText } from "./panel.js";
import { overview } from "./overview.js";
import { measured, nearest } from "./plane.js";
import { sinkOf, told } from "./tints.js";
import { drawOne } from "./sceneheads.js";
import { term } from "./words.js";
import { rowsOf } from "./folder.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").HeadRole} HeadRole */

const PAIRS = 12;

/** @param {number | null} lift */
function lifted(lift) {
  return lift === null ? "–" : times(lift);
}

/** @param {number | null} value */
function orDash(value) {
  return value === null ? "–" : shown(value);
}

/** @param {string[]} names */
function tableHead(names) {
  return make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
}

/** @param {string} where @param {HeadRole[]} roles */
function sentence(where, roles) {
  return roles.length ? make("p", {}, `${where}: ${roles.map(({ said }) => said).join(", ")}.`) : "";
}

/** @param {Head} head */
function roles(head) {
  if (!head.data.roles.length) {
    return [make("p", {}, "No role: on this text no score reaches its threshold.")];
  }
  const lines = head.data.roles.map((role) => {
    const [mean, chance, lift, rows] = role.numbers;
    const style = roleOf.get(role.name);
    const badge = make("span", { class: "badge" }, role.title);
    if (style) {
      badge.style.background = style.color;
      badge.style.color = style.ink;
    }
    const numbers = role.name === "diffuse" ? [orDash(mean), "–", "–"] : [orDash(mean), orDash(chance), lifted(lift)];
    const possible = `${rows}${role.possible ? `, ${role.possible} of all` : ""}${role.few ? " (few)" : ""}`;
    const next = role.rival ? `${role.rival[0]} ${shown(role.rival[1])}` : "–";
    return make("tr", {}, make("th", { scope: "row" }, badge), ...[role.rests ? "sink" : "does", role.score, ...numbers, possible, next]
      .map((text) => make("td", {}, text)));
  });
  const why = head.data.roles.map((role) => {
    const style = roleOf.get(role.name);
    return make("li", {}, make("strong", {}, role.title), style ? `: ${style.reason} (${style.source})` : "");
  });
  return [
    sentence("On this text", head.data.roles.filter(({ given }) => !given)),
    sentence("On annotated text", head.data.roles.filter(({ given }) => given)),
    make("table", { class: "numbers" }, tableHead(["role", "kind", "evidence", "score", "chance", "lift", "rows", "runner-up"]), make("tbody", {}, ...lines)),
    make("ul", { class: "small" }, ...why),
  ];
}

/**
 * A score's name; that of the sink with its token, which leads to the rows that attend to it.
 * @param {State} state
 * @param {Head} head
 * @param {string} name
 */
function named(state, head, name) {
  const at = name === "sink" ? sinkOf(state, head) : "";
  const shown = name.replaceAll("_", " ");
  return at ? [`${shown}: `, make("button", { type: "button", class: "link", "data-sink": String(head.data.sink), "aria-label": `which tokens attend to the sink, ${at}` }, at)] : [shown];
}

/** @param {State} state @param {Head} head */
function bars(state, head) {
  const lines = page.scores.map((score, i) => {
    const [mean, chance, lift, rows] = head.data.scores[i];
    const bar = make("div", { class: "bar" });
    if (score.unit === "share" && mean !== null) {
      const part = make("div", { class: "bar-fill" });
      part.style.width = `${100 * Math.min(1, mean)}%`;
      bar.append(part);
      if (chance !== null) {
        const tick = make("div", { class: "bar-chance" });
        tick.style.left = `${100 * Math.min(1, chance)}%`;
        bar.append(tick);
      }
    }
    const unit = score.unit === "share" || mean === null ? "" : ` ${score.unit}`;
    return make("tr", { title: `${score.formula}; ${score.source}` },
      make("th", { scope: "row" }, ...named(state, head, score.name)),
      make("td", { class: "wide" }, bar),
      ...[orDash(mean) + unit, orDash(chance), lifted(lift), String(rows)].map((text) => make("td", {}, text)));
  });
  return make("table", { class: "numbers" }, tableHead(["score", "0 … 1", "mean", "chance", "lift", "rows"]), make("tbody", {}, ...lines));
}

/** What is no part of attnviz, with the functions that measured it. */
function userDefined() {
  const named = [...page.roles.filter(({ user }) => user).map(({ name, user }) => `role ${name} (${user})`),
    ...page.scores.filter(({ user }) => user).map(({ name, user, formula }) => `score ${name.replaceAll("_", " ")} (${[user, formula].filter(Boolean).join(": ")})`)];
  return named.length ? make("p", { class: "small" }, `User-defined: ${named.join("; ")}.`) : "";
}

/** The largest weights of a head. @param {State} state @param {Head} head */
function strongest(state, head) {
  const panel = panelOf(state, [head.id]);
  const { queries, keys, R, C, layers } = panel;
  const { data } = layers[0];
  /** @type {number[]} */
  const best = [];
  for (let i = 0; i < R * C; i++) {
    if (data[i] <= 0 || (best.length === PAIRS && data[i] <= data[best[PAIRS - 1]])) continue;
    let place = best.length;
    while (place > 0 && data[best[place - 1]] < data[i]) place--;
    best.splice(place, 0, i);
    if (best.length > PAIRS) best.pop();
  }
  return best.map((i) => {
    const [r, c] = [Math.trunc(i / C), i % C];
    return {
      query: queries.labels[r], key: keys.labels[c], r: queries.at[r], c: keys.at[c], weight: weightText(panel, 0, i),
      who: `q${queries.from[r]}k${keys.from[c]}`, named: `${queries.spoken[r]} to ${keys.spoken[c]}`,
    };
  });
}

/** The heads most like it, each a link. @param {State} state @param {Head} head */
function alike(state, head) {
  const near = nearest(state, head.id);
  if (!near.length) return [];
  const items = near.map(([id, far]) => {
    const other = headOf(state, id);
    const roles = other ? described(other).slice(other.title.length) : "";
    return make("li", {}, make("button", { type: "button", class: "link", "data-head": id, "aria-label": titleOf(state, id) }, other?.name || id), ` at ${fixed(far, 2)}${roles}`);
  });
  return [make("h3", {}, "Most like it"), make("ul", {}, ...items), make("p", { class: "small" }, `${measured(state)}.`)];
}

/** What can't be concluded from all this. @param {Head} head */
function limits(head) {
  const out = [
    "A role says where this head looks on this text, more than chance would have it. It is no test of significance, and other texts can give other roles.",
    "Where a head looks is not what it does: its values, the output matrix, the residual path and later layers decide what arrives (Jain & Wallace 2019; Kobayashi et al. 2020).",
    "A clear pattern does not make a head necessary: many heads can be taken out at little loss (Michel et al. 2019). Ablation would show it; a picture cannot.",
  ];
  const rows = head.data.scores.map((value) => value[3]).filter((count) => count > 0);
  if (rows.length && Math.min(...rows) < page.fewRows) {
    out.unshift(`Some scores are based on fewer than ${page.fewRows} rows; with fewer than ${page.minRows} no role is given. A longer text says more.`);
  }
  return out;
}

/**
 * What the head sees of a picture or hears of a sound, from the token that is pinned.
 * @param {State} state
 * @param {Head} head
 */
function beside(state, head) {
  const canvas = make("canvas", { role: "img" });
  const said = drawOne(canvas, state, head);
  canvas.setAttribute("aria-label", said);
  return said ? [make("h3", {}, said), canvas] : [];
}

/** A term that says what it means. @param {string} text @param {Record<string, string>} mark */
function word(text, mark) {
  return make("button", { type: "button", class: "term", ...mark }, text);
}

/** @type {import("./types.js").View} */
export const card = {
  draw(state) {
    const head = headOf(state, state.head);
    if (!head) return;
    const pairs = strongest(state, head).map(({ query, key, r, c, weight, who, named }) => make("tr", {},
      make("td", {}, make("bdi", {}, query), make("span", { class: "tip-more" }, ` ${r}`)),
      make("td", {}, make("bdi", {}, key), make("span", { class: "tip-more" }, ` ${c}`)),
      make("td", {}, make("button", { type: "button", class: "link", "data-who": who, "aria-label": `who does this, ${named}` }, "who?")),
      make("td", {}, weight)));
    const said = saidOf(panelOf(state, [head.id]), { ...state, mix: "mean" });
    const rows = rowsOf(head.name);
    fill(byId("card-body"),
      make("h2", {}, capital(head.title), make("span", { class: "soft" }, `  ${kindOf(state).title}, ${itemOf(state).model}`)),
      rows ? make("p", {}, make("a", { href: rows }, `${head.name} over many texts, row by row`)) : "",
      make("div", { class: "columns-2" },
        make("section", { tabindex: "0", "aria-label": "roles and scores" }, make("h3", {}, word("Roles", term("role"))), ...roles(head), make("h3", {}, "Scores against ", word("chance", term("chance"))), bars(state, head),
          make("p", { class: "small" }, "Bar: the mean over the rows that count. Mark: the same under uniform attention. Scores are of the whole text, whatever is hidden here."), userDefined()),
        make("section", {}, make("h3", {}, "Strongest pairs"),
          said.length ? make("p", { class: "small" }, said.join(" ")) : "",
          make("table", { class: "numbers" }, tableHead(["query", "key", "heads", nounOf(state)]), make("tbody", {}, ...pairs)),
          ...beside(state, head),
          ...told(state, head),
          ...alike(state, head),
          make("h3", {}, "What this can't prove"), make("ul", { class: "small" }, ...limits(head).map((text) => make("li", {}, text))))));
  },
  picture(painter, state) {
    const head = headOf(state, state.head);
    const tones = ink();
    if (!head) return { width: 10, height: 10 };
    painter.text(`${itemOf(state).model}, ${kindOf(state).title}: ${head.title}`, 12, 16, { size: 14, weight: 600, color: tones.text });
    painter.text(`Bar: mean over rows. Mark: chance. ${itemOf(state).label}`, 12, 35, { size: 11, color: tones.soft });
    let y = 64;
    page.scores.forEach((score, i) => {
      const [mean, chance, lift, rows] = head.data.scores[i];
      painter.text(score.name.replaceAll("_", " "), 140, y, { size: 12, align: "right", color: tones.text });
      if (score.unit === "share") {
        painter.rect(150, y - 7, 260, 14, tones.line, 0.5);
        if (mean !== null) painter.rect(150, y - 7, 260 * Math.min(1, mean), 14, tones.strong);
        if (chance !== null) painter.rect(149 + 260 * Math.min(1, chance), y - 10, 2, 20, tones.mark);
      }
      painter.text(`${orDash(mean)}${score.unit === "share" ? "" : ` ${score.unit}`}   ${lifted(lift)}   ${plural(Number(rows), "row")}`, 424, y, { size: 12, color: tones.text });
      y += 23;
    });
    const roles = head.data.roles.map(({ said }) => said).join(", ");
    painter.text(roles || "no role", 12, y + 8, { size: 12, weight: 600, color: tones.text });
    return { width: 640, height: y + 26 };
  },
  focus: () => byId("card-body"),
  numbers(state) {
    const [names, ...lines] = overview.numbers(state);
    return [names, ...lines.filter(([id]) => id === state.head)];
  },
};

/** A click on a head's sink shows the text with what attends to it. */
export function startCard() {
  byId("card-body").addEventListener("click", (event) => {
    const at = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.sink;
    if (at) set({ view: viewsOf(get()).includes("stage") ? "stage" : "map", pin: `k${at}`, toward: true, on: [get().head] });
  });
}

/** @param {State} state how many heads are shown, in words */
export function counted(state) {
  const mixed = mixOf(state, state.on.length);
  return state.on.length === 1 ? titleOf(state, state.on[0]) : `${mixed} of ${several(state, state.on.length)}`;
}
