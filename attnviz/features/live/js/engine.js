import { byId } from "./dom.js";

/** @typedef {import("./types.js").Ask} Ask */
/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Said} Said */

/** @type {Worker} */
let worker;
let turn = 0;
let working = true;
/** @type {Ask | null} */
let waiting = null;
/** @type {Map<number, (answer: Answer) => void>} */
const asked = new Map();

/**
 * Start the network in a thread of its own, which is made of a script that lies in the page.
 * @param {(milliseconds: number, fast: boolean) => void} ready
 * @param {(why: string) => void} failed
 */
export function startEngine(ready, failed) {
  const script = new Blob([byId("worker").textContent || ""], { type: "text/javascript" });
  worker = new Worker(URL.createObjectURL(script));
  worker.addEventListener("error", (event) => failed(event.message || "the network did not start"));
  worker.addEventListener("message", (/** @type {MessageEvent<Said>} */ { data }) => {
    if (data.failed) failed(data.failed);
    working = false;
    if (data.ready !== undefined) ready(data.ready, Boolean(data.fast));
    if (data.answer) {
      asked.get(data.answer.turn)?.(data.answer);
      asked.delete(data.answer.turn);
    }
    next();
  });
  worker.postMessage({
    network: JSON.parse(byId("network").textContent || ""),
    packed: byId("weights").textContent,
    kernel: byId("kernel").textContent,
  });
}

/**
 * Ask; while the network works only the newest question waits, older ones are never answered.
 * @param {Omit<Ask, "turn">} question
 * @returns {Promise<Answer>}
 */
export function ask(question) {
  return new Promise((done) => {
    if (waiting) asked.delete(waiting.turn);
    waiting = { ...question, turn: ++turn };
    asked.set(turn, done);
    next();
  });
}

function next() {
  if (working || !waiting) return;
  working = true;
  worker.postMessage(waiting);
  waiting = null;
}
