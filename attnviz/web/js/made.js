import { byId } from "./dom.js";

/** What made the page, on one line: for files that it saves. */
export function madeLine() {
  return document.getElementById("made-line")?.textContent || "";
}

/** A button beside that line copies it, and says whether it did. */
export function startMade() {
  const button = byId("copy-made");
  button.hidden = false;
  button.addEventListener("click", async () => {
    let said = "copied";
    try {
      await navigator.clipboard.writeText(madeLine());
    } catch {
      getSelection()?.selectAllChildren(byId("made-line"));
      said = "not copied: it is selected";
    }
    button.textContent = said;
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });
}
