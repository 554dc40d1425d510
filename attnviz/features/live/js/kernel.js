/** A page of WebAssembly's memory, in bytes. */
const PAGE = 65536;
/** Rows that are multiplied at a time. */
const ROWS = 64;

/** What multiplies, if this browser can. @type {Kernel | null} */
let kernel = null;

/** A matrix product in WebAssembly, with the memory that its matrices have to lie in. */
class Kernel {
  /**
   * @param {BufferSource} code product.wasm
   * @param {number} weights numbers that will be kept in its memory
   * @param {number} widest a row of numbers to multiply, or of products
   * @param {number} spare numbers that matrices which are made on the way may have
   */
  constructor(code, weights, widest, spare) {
    const scratch = 2 * ROWS * widest + spare;
    this.memory = new WebAssembly.Memory({ initial: Math.ceil((4 * (weights + scratch) + PAGE) / PAGE) });
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(code), { page: { memory: this.memory } });
    /** Rows, their number, width, weights, bias, size, out: in bytes. @type {(...values: number[]) => void} */
    this.product = /** @type {any} */ (exports.product);
    this.widest = widest;
    this.numbers = new Float32Array(this.memory.buffer);
    // offset 0 stands for no bias
    this.free = 4;
    this.x = 0;
    this.out = 0;
    this.spare = spare;
  }

  /** Room for numbers that stay. @param {number} size */
  take(size) {
    const found = this.numbers.subarray(this.free, this.free + size);
    this.free += Math.ceil(size / 4) * 4;
    [this.x, this.out] = [this.free, this.free + ROWS * this.widest];
    return found;
  }
}

/**
 * Multiply in WebAssembly from now on; where that cannot be, nothing changes.
 * @param {string} code in base64
 * @param {number[]} sizes of the arrays that will be kept
 * @param {number} widest see {@link Kernel}
 * @param {number} spare see there
 */
export function startKernel(code, sizes, widest, spare) {
  kernel = null;
  if (!code || typeof WebAssembly === "undefined") return;
  try {
    const bytes = Uint8Array.from(atob(code), (sign) => sign.charCodeAt(0));
    kernel = new Kernel(bytes, sizes.reduce((sum, size) => sum + Math.ceil(size / 4) * 4, 4), widest, spare);
  } catch {
    // no SIMD, no leave by the policy, or not as much memory at once: plain JavaScript does it
  }
}

/** Room for numbers that stay, where the kernel finds them. @param {number} size */
export function room(size) {
  return kernel ? kernel.take(size) : new Float32Array(size);
}

/** Room for one matrix that is made on the way, until the next one is. @param {number} size */
export function spareRoom(size) {
  if (!kernel || size > kernel.spare) return new Float32Array(size);
  const start = kernel.out + ROWS * kernel.widest;
  return kernel.numbers.subarray(start, start + size);
}

/** Whether WebAssembly multiplies. */
export function isFast() {
  return kernel !== null;
}

/**
 * The product of product.js in WebAssembly; false where that cannot be, and nothing is done.
 * @param {Float32Array} x
 * @param {number} from
 * @param {number} to
 * @param {number} width
 * @param {Float32Array} weight
 * @param {Float32Array | null} bias
 * @param {Float32Array} out
 */
export function fastProduct(x, from, to, width, weight, bias, out) {
  const size = weight.length / width;
  if (!kernel || weight.buffer !== kernel.memory.buffer || width % 4 || (bias && bias.buffer !== weight.buffer)) return false;
  const step = Math.min(ROWS, Math.floor((ROWS * kernel.widest) / Math.max(width, size)));
  if (!step) return false;
  for (let t = from; t < to; t += step) {
    const rows = Math.min(step, to - t);
    kernel.numbers.set(x.subarray(t * width, (t + rows) * width), kernel.x);
    kernel.product(4 * kernel.x, rows, width, weight.byteOffset, bias ? bias.byteOffset : 0, size, 4 * kernel.out);
    out.set(kernel.numbers.subarray(kernel.out, kernel.out + rows * size), t * size);
  }
  return true;
}
