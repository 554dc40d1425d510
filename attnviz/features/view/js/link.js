/** @typedef {import("./types.js").Token} Token */

/** @type {(token: Token | null, from: string) => void} */
let heard = () => {};

/** Hear of the token that a pointer or the keyboard is on, in whichever view. @param {typeof heard} listener */
export function onLook(listener) {
  heard = listener;
}

/** Tell the other views on the stage which token is looked at. @param {Token | null} token @param {string} from the view */
export function look(token, from) {
  heard(token, from);
}
