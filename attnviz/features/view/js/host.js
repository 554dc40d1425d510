import { get, set, subscribe } from "./store.js";
import { page } from "./data.js";

/**
 * What a notebook's widget says: a head to show, by its kind of layer, of a text; empty for none.
 * @typedef {{ attnviz: "show", kind: string, head: string, text: number }} Asked
 */

/** Whether a message of another window is one that a widget sends. @param {any} data @returns {data is Asked} */
function isAsked(data) {
  return data?.attnviz === "show" && typeof data.kind === "string" && typeof data.head === "string" && Number.isInteger(data.text);
}

/**
 * Where a widget shows this page in a frame, do as it says, and tell it which heads are chosen.
 * Nothing is told to a window that has not asked.
 */
export function startHost() {
  if (parent === window) return;
  let told = "";
  let asked = false;
  const tell = () => {
    const { head, on, kind, text } = get();
    const now = JSON.stringify([head, on, kind, text]);
    if (!asked || now === told) return;
    told = now;
    // a frame without an address of its own has no origin to name; only names of heads are told
    parent.postMessage({ attnviz: "shown", head, on, kind, text }, "*");
  };
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || !isAsked(data)) return;
    asked = true;
    const { head, kind, text } = data;
    const known = page.items[text]?.kinds.find((one) => one.kind === kind);
    if (known?.sites.length && head) set({ text, kind, head, on: [head] });
    tell();
  });
  subscribe(tell);
}
