/** @param {string} text base64 of a zlib stream */
export async function inflate(text) {
  const stream = new Blob([fromBase64(text)]).stream();
  const inflated = stream.pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function fromBase64(text) {
  const quick = /** @type {any} */ (Uint8Array).fromBase64;
  if (quick) return /** @type {Uint8Array<ArrayBuffer>} */ (quick.call(Uint8Array, text));
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
