import { setAddress } from "./observed.js";

/** What a page in another one is laid out for, in pixels, however high its frame is. */
const HEIGHT = 760;
const ASKED = "embed=1";

/** Takes `embed=1` out of the address, so that the rest says what is shown; whether it was there. */
function asked() {
  const parts = location.hash.slice(1).split("&");
  if (!parts.includes(ASKED)) return false;
  const rest = parts.filter((part) => part !== ASKED).join("&");
  setAddress(rest && `#${rest}`);
  return true;
}

const embedded = asked();
if (embedded) {
  document.documentElement.dataset.embed = "";
  addEventListener("hashchange", asked, { capture: true });
}

/** How high the window is for whatever is laid out by it. */
export function windowHeight() {
  return embedded ? HEIGHT : innerHeight;
}

/** A page in a frame tells the document around it how high it is, now and whenever that changes. */
export function startEmbed() {
  if (!embedded || parent === window) return;
  let told = 0;
  new ResizeObserver(() => {
    const height = Math.ceil(document.body.getBoundingClientRect().height);
    if (height === told) return;
    told = height;
    // a file has no origin to name; a height is all that is told
    parent.postMessage({ attnviz: "height", height }, "*");
  }).observe(document.body);
}
