/** A line of a CSV file. @param {string[]} cells */
export function csvLine(cells) {
  return `${cells.map((cell) => quoted(inert(cell))).join(",")}\r\n`;
}

/**
 * A cell that no spreadsheet takes for a formula: an apostrophe stands before what begins like one,
 * and before an apostrophe, so that taking off the first of them reads it back. Numbers stay.
 * @param {string} cell
 */
export function inert(cell) {
  return /^['=+\-@\t\r]/.test(cell) && !/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(cell) ? `'${cell}` : cell;
}

/** @param {string} cell */
function quoted(cell) {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
