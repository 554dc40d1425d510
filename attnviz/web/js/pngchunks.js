/** Of each byte, for the check of every chunk of a PNG and of every file of a zip (ISO 3309). */
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/** @param {Uint8Array} bytes */
export function crc32(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = REMAINDERS[(sum ^ byte) & 255] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

/** @param {string} name @param {Uint8Array} data */
function chunk(name, data) {
  const whole = new Uint8Array(12 + data.length);
  const view = new DataView(whole.buffer);
  view.setUint32(0, data.length);
  whole.set(new TextEncoder().encode(name), 4);
  whole.set(data, 8);
  view.setUint32(8 + data.length, crc32(whole.subarray(4, 8 + data.length)));
  return whole;
}

/** Where the chunk that a PNG begins with, its header, ends. */
const AFTER_HEADER = 33;

/**
 * A PNG with texts beside its pixels.
 * @param {Blob} png
 * @param {Record<string, string>} texts by the keywords of the format
 * @param {number} [dpi] dots per inch, for programs that print
 */
export async function withTexts(png, texts, dpi) {
  const encoder = new TextEncoder();
  const said = Object.entries(texts).map(([name, text]) => chunk("iTXt", encoder.encode(`${name}\0\0\0\0\0${text}`)));
  if (dpi) {
    const density = new DataView(new ArrayBuffer(9));
    for (const at of [0, 4]) density.setUint32(at, Math.round(dpi / 0.0254));
    density.setUint8(8, 1);
    said.push(chunk("pHYs", new Uint8Array(density.buffer)));
  }
  return new Blob([png.slice(0, AFTER_HEADER), ...said, png.slice(AFTER_HEADER)], { type: "image/png" });
}
