// Frames in JavaScript, for browsers, Node, Deno and workers: the core in C as WebAssembly, without dependencies.
//
//     import { load } from "./frames.mjs";
//     const frames = await load(await (await fetch("aq.wasm")).arrayBuffer());
//     const vector = frames.decode(bytes, 10000);  // a Float32Array of 10,000 elements, or an error
//
// `make wasm` builds aq.wasm.

const AQ_MEMORY = 1; // enum aq_code in core/aq.h
const MOST = 2 ** 26; // elements, if the caller does not say what it expects
// Where the structures of core/aq.h lie, in bytes behind the module's own data.
const ERROR = 0, HEADER = 64, BOUND = 192, LENT = 208, FRAME = 256;
const FIELD = { dimension: 0, s: 96, quantizer: 100, codec: 104 }; // of aq_header

export class FrameError extends Error {}

/** Instantiate the module from the bytes of aq.wasm. */
export async function load(wasm) {
  const { instance } = await WebAssembly.instantiate(wasm, {});
  const { memory, __heap_base, _initialize, aq_check, aq_add } = instance.exports;
  _initialize();
  const base = (__heap_base.value + 63) & ~63;
  const view = () => new DataView(memory.buffer); // it is another one after memory has grown

  function reserve(end) {
    const pages = Math.ceil((end - memory.buffer.byteLength) / 65536);
    if (pages > 0) memory.grow(pages);
  }

  function refuse(code) {
    throw new FrameError(`The frame is refused: code ${code} of enum aq_code in core/aq.h.`);
  }

  /** Check the header and the checksum of a frame. expected: its dimension, if that is known. */
  function check(frame, expected = 0) {
    reserve(base + FRAME + frame.length);
    new Uint8Array(memory.buffer).set(frame, base + FRAME);
    const size = BigInt(frame.length);
    const code = aq_check(base + FRAME, size, BigInt(expected), 0, 0, base + HEADER, base + ERROR);
    if (code) refuse(code);
    const at = view(), header = base + HEADER;
    return {
      dimension: Number(at.getBigUint64(header + FIELD.dimension, true)),
      s: at.getUint32(header + FIELD.s, true),
      quantizer: at.getInt32(header + FIELD.quantizer, true),
      codec: at.getInt32(header + FIELD.codec, true),
    };
  }

  /** Decode a frame to a Float32Array: float32 values, or levels of a quantizer without rotation, dither or powers. */
  function decode(frame, expected = 0) {
    const { dimension } = check(frame, expected);
    if (!expected && dimension > MOST) throw new FrameError(`${dimension} elements were not expected.`);
    const total = (base + FRAME + frame.length + 63) & ~63;
    const lent = (total + 4 * dimension + 63) & ~63;
    for (let bytes = 0; ; ) {
      reserve(lent + bytes);
      new Float32Array(memory.buffer, total, dimension).fill(0);
      const at = view();
      at.setFloat64(base + BOUND, 0, true);
      at.setUint32(base + LENT, lent, true); // aq_memory: an address and a size
      at.setBigUint64(base + LENT + 8, BigInt(bytes), true);
      // The sum of one frame with weight 1 is its vector.
      const [size, d] = [BigInt(frame.length), BigInt(dimension)];
      const code = aq_add(base + FRAME, size, d, 0, 1, total, base + BOUND, base + LENT, 0, base + ERROR);
      if (!code) return new Float32Array(memory.buffer, total, dimension).slice();
      if (code !== AQ_MEMORY) refuse(code);
      bytes = Number(view().getBigInt64(base + ERROR + 8, true)); // what it needs
    }
  }

  return { check, decode };
}
