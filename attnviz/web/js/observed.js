/**
 * What a page shows, as one value: whoever draws it hears what changed, together and once.
 * @template {object} State
 * @param {State} start
 * @param {(tell: () => void) => void} [later] calls what it is given when it is time to draw; at once by default
 * @param {(value: any) => string} [text] of values that are equal where their texts are
 */
export function observed(start, later = (tell) => tell(), text = String) {
  let state = start;
  let waiting = false;
  /** @type {Set<keyof State>} */
  let changed = new Set();
  /** @type {((state: State, changed: Set<keyof State>) => void)[]} */
  const listeners = [];

  function tell() {
    waiting = false;
    const what = changed;
    changed = new Set();
    for (const listener of listeners) listener(state, what);
  }

  /** @param {State} next @param {boolean} [all] whether it is drawn anew whatever changed */
  function set(next, all = false) {
    for (const name of /** @type {(keyof State)[]} */ (Object.keys(next))) {
      if (all || text(next[name]) !== text(state[name])) changed.add(name);
    }
    state = next;
    if (!changed.size || waiting) return;
    waiting = true;
    later(tell);
  }

  return {
    get: () => state,
    set,
    /** @param {(state: State, changed: Set<keyof State>) => void} listener */
    subscribe: (listener) => { listeners.push(listener); },
  };
}

/**
 * Put a state into the address, so that a link shows it again.
 * @param {string} hash with its `#`, or nothing
 * @param {boolean} [visited] whether the browser's Back comes back to what was there
 */
export function setAddress(hash, visited = false) {
  try {
    const address = hash || location.pathname + location.search;
    if (visited) history.pushState(null, "", address);
    else history.replaceState(history.state, "", address);
  } catch {
    // a notebook's frame has no address of its own, and browsers allow only so many changes at once
  }
}
