"use strict";
// Tokens downwards, layers to the right. A node is a position between two layers: (0, i) is token i,
// (L, i) what stands at position i in the end. Following a node draws what reached it and where it goes.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (name) => document.getElementById(name);
const count = data.tokens.length;
const depth = data.columns.length;
const steps = data.steps.map(table);
const total = table(data.total);
const weights = table(data.weights);
const ROW = count <= 40 ? 22 : count <= 120 ? 16 : 12;
const MOST = 12000; // lines at a time
const least = () => Math.max(Number(at("least").value) / 100, 1e-6);
const canvas = at("lines");
const start = data.followed;
let chosen = null; // { layer, nodes } or null for all
let held = false;

/** Shares [n * n], row by row, from little-endian 16-bit numbers in base64. */
function table(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, n) => view.getUint16(2 * n, true) / 65535);
}

function element(tag, name, parent) {
  const made = document.createElement(tag);
  made.className = name;
  parent.append(made);
  return made;
}

/** One side: a row a token with its text, its share and two bars. */
function side(place) {
  return data.tokens.map((text, node) => {
    const row = element("div", node === data.targets && node ? "row target" : "row", place);
    element("bdi", "", row).textContent = text;
    row.title = `${text} (${position(node)})`;
    const share = element("span", "share", row);
    const bars = element("div", "bars", row);
    return { row, share, flow: element("i", "flow", bars), weights: element("i", "weights", bars) };
  });
}

const position = (node) => (data.targets && node >= data.targets ? node - data.targets : node);
const named = (node) => `${data.tokens[node]} (${position(node)})`;
const percent = (share) => (share >= 0.005 ? `${Math.round(100 * share)} %` : "<1 %");

/** What reached a node, layer by layer: lines, and its shares of the tokens. */
function back({ layer, nodes }, lines) {
  const from = least();
  let now = new Float32Array(count);
  for (const node of nodes) now[node] = 1 / nodes.length;
  for (let step = layer - 1; step >= 0; step -= 1) {
    const next = new Float32Array(count);
    for (let i = 0; i < count; i += 1) {
      if (!now[i]) continue;
      for (let j = 0; j < count; j += 1) {
        const share = now[i] * steps[step][i * count + j];
        next[j] += share;
        if (share >= from) lines.push([share, step, j, i]);
      }
    }
    now = next;
  }
  return now;
}

/** Where a node goes: lines, and what every position has of it in the end. */
function onward({ layer, nodes }, lines) {
  const from = least();
  let now = new Float32Array(count);
  for (const node of nodes) now[node] = 1;
  for (let step = layer; step < depth; step += 1) {
    const next = new Float32Array(count);
    for (let i = 0; i < count; i += 1) {
      for (let j = 0; j < count; j += 1) {
        const share = steps[step][i * count + j] * now[j];
        next[i] += share;
        if (share >= from) lines.push([share, step, j, i]);
      }
    }
    now = next;
  }
  return now;
}

/** Every line of every layer. */
function all() {
  const lines = [];
  const from = least();
  steps.forEach((shares, step) => {
    shares.forEach((share, n) => {
      if (share >= from) lines.push([share, step, n % count, Math.floor(n / count)]);
    });
  });
  return lines;
}

/** Rows or columns of a table for the chosen tokens: a mean over rows, a sum over columns. */
function taken(shares, { layer, nodes }) {
  const found = new Float32Array(count);
  for (const node of nodes) {
    for (let n = 0; n < count; n += 1) {
      found[n] += layer ? shares[node * count + n] / nodes.length : shares[n * count + node];
    }
  }
  return found;
}

function show(rows, flow, looked, top) {
  rows.forEach(({ row, share, flow: bar, weights: other }, node) => {
    share.textContent = flow && flow[node] ? percent(flow[node]) : "";
    bar.style.width = flow ? `${(100 * flow[node]) / top}%` : "0";
    other.style.width = looked ? `${(100 * looked[node]) / top}%` : "0";
    row.classList.toggle("chosen", Boolean(chosen && chosen.nodes.includes(node)));
  });
}

/** The sentence above: the strongest shares, and of whole ways the weights beside them. */
function say(flow, looked, word) {
  const order = [...flow.keys()].sort((a, b) => flow[b] - flow[a]).slice(0, 4);
  return order
    .filter((node) => flow[node] >= 0.005)
    .map((node) => `${percent(flow[node])} ${word} ${named(node)}${looked ? ` [${percent(looked[node])} of the weight]` : ""}`)
    .join(", ");
}

let pending = 0;
function update() {
  if (!pending) pending = requestAnimationFrame(draw);
}

function draw() {
  pending = 0;
  const lines = chosen ? [] : all();
  let reached = null;
  let given = null;
  let looked = null;
  if (chosen) {
    reached = chosen.layer ? back(chosen, lines) : null;
    given = chosen.layer < depth ? onward(chosen, lines) : null;
    const whole = chosen.layer === 0 || chosen.layer === depth;
    if (whole) {
      looked = taken(weights, chosen);
      const flow = taken(total, chosen);
      if (chosen.layer) reached = flow;
      else given = flow;
    }
    const who = chosen.nodes.map(named).join(" ");
    const where = whole ? "" : ` after ${data.columns[chosen.layer - 1]}`;
    const parts = [];
    if (reached) parts.push(`is ${say(reached, looked, "from")}`);
    if (given) parts.push(`makes up ${say(given, reached ? null : looked, "of")}`);
    at("said").textContent = `${who}${where} ${parts.join("; ")}`;
  } else {
    at("said").textContent = "all tokens, layer by layer";
  }
  const top = Math.max(...(reached || [0]), ...(given || [0]), ...(looked || [0]), 1e-6);
  show(before, reached, reached && looked, top);
  show(after, given, given && !reached ? looked : null, top);
  paint(lines);
  at("stage").dataset.node = chosen ? `${chosen.layer}:${chosen.nodes}` : "";
  document.documentElement.dataset.busy = "0";
}

/** Lines as thick and as strong as their shares; without a chosen node what stays is grey. */
function paint(lines) {
  const width = canvas.clientWidth;
  const height = ROW * count;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const [flow, stays, line, mark] = ["flow", "stays", "line", "chosen"].map(color);
  pen.scale(ratio, ratio);
  const step = width / depth;
  if (chosen) {
    pen.fillStyle = mark;
    for (const node of chosen.nodes) pen.fillRect(0, node * ROW, width, ROW);
  }
  pen.strokeStyle = line;
  for (let n = 0; n <= depth; n += 1) {
    pen.beginPath();
    pen.moveTo(n * step, 0);
    pen.lineTo(n * step, height);
    pen.stroke();
  }
  const drawn = lines.sort((a, b) => a[0] - b[0]).slice(-MOST);
  const quiet = (one) => !chosen && one[2] === one[3];
  for (const one of [...drawn.filter(quiet), ...drawn.filter((other) => !quiet(other))]) {
    const [share, layer, from, to] = one;
    const [x, y, end] = [layer * step, (from + 0.5) * ROW, (to + 0.5) * ROW];
    pen.strokeStyle = quiet(one) ? stays : flow;
    pen.globalAlpha = 0.12 + 0.78 * Math.sqrt(Math.min(share, 1));
    pen.lineWidth = Math.max(share * Math.min(ROW - 3, 18), 0.5);
    pen.beginPath();
    pen.moveTo(x, y);
    pen.bezierCurveTo(x + step / 2, y, x + step / 2, end, x + step, end);
    pen.stroke();
  }
  pen.globalAlpha = 1;
  if (chosen) {
    pen.fillStyle = flow;
    for (const node of chosen.nodes) {
      pen.beginPath();
      pen.arc(Math.min(Math.max(chosen.layer * step, 4), width - 4), (node + 0.5) * ROW, 4, 0, 7);
      pen.fill();
    }
  }
}

/** The node under the pointer: a token on the left, a position on the right, else the nearest. */
function under(event) {
  const box = canvas.getBoundingClientRect();
  const node = Math.floor((event.clientY - box.top) / ROW);
  if (node < 0 || node >= count) return null;
  const layer = Math.round(((event.clientX - box.left) / box.width) * depth);
  return { layer: Math.min(Math.max(layer, 0), depth), nodes: [node] };
}

function choose(node, hold) {
  chosen = node;
  held = Boolean(node) && hold;
  update();
}

const MOVES = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

function pressed(event) {
  const last = { layer: depth, nodes: [count - 1] };
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") choose(null, false);
  else if (event.key === "Enter" || event.key === " ") choose(chosen || last, !held);
  else if (event.key === "Home") choose({ layer: (chosen || last).layer, nodes: [0] }, true);
  else if (event.key === "End") choose({ layer: (chosen || last).layer, nodes: [count - 1] }, true);
  else if (event.key in MOVES) {
    const [along, down] = chosen ? MOVES[event.key] : [0, 0];
    const { layer, nodes } = chosen || last;
    const clip = (value, most) => Math.min(Math.max(value, 0), most);
    choose({ layer: clip(layer + along, depth), nodes: [clip(nodes[0] + down, count - 1)] }, true);
  } else return;
  event.preventDefault();
}

at("title").textContent = data.title;
at("how").textContent = data.formula;
at("method").textContent = data.method;
at("closing").textContent = data.closing;
at("stage").style.setProperty("--row", `${ROW}px`);
const before = side(at("before"));
const after = side(at("after"));
const widest = Math.max(...before.map(({ row }) => row.firstChild.offsetWidth));
document.documentElement.style.setProperty("--label", `${widest + 1}px`);
const names = element("div", "", at("names"));
for (const name of data.columns) element("span", "", names).textContent = name;

at("stage").addEventListener("mousemove", (event) => {
  if (!held) choose(under(event), false);
});
at("stage").addEventListener("mouseleave", () => {
  if (!held) choose(null, false);
});
at("stage").addEventListener("click", (event) => {
  const node = under(event);
  const same = held && node && chosen.layer === node.layer && chosen.nodes[0] === node.nodes[0];
  choose(same ? null : node, !same);
});
at("stage").addEventListener("keydown", pressed);
at("free").addEventListener("click", () => choose(null, false));
function limit() {
  at("least-shown").textContent = `${at("least").value} %`;
  update();
}
at("least").addEventListener("input", limit);
window.addEventListener("resize", update);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
if (start) choose({ layer: start.direction === "to" ? depth : 0, nodes: start.positions }, true);
limit();
