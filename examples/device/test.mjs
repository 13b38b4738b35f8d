// Golden frames in JavaScript: node test.mjs tests/codecs/golden
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { FrameError, load } from "./frames.mjs";

const folder = process.argv[2];
const frames = await load(await readFile(new URL("aq.wasm", import.meta.url)));
const expected = JSON.parse(await readFile(`${folder}/expected.json`, "utf8"));
const LINEAR = [0, 1, 8, 11, 12, 13]; // tags of quantizers whose elements are levels times a step
const STC = 11; // its step is the scale itself
let read = 0, refused = 0;

function valuesOf(entry, quantizer) {
  const levels = entry.runs.flatMap(([level, times]) => Array(times).fill(level));
  const ends = (entry.segments ?? [levels.length]).reduce((all, length) => [...all, (all.at(-1) ?? 0) + length], []);
  const steps = entry.scales.map((scale) => scale / (quantizer === STC ? 1 : entry.s));
  return levels.map((level, i) => steps[ends.findIndex((end) => i < end)] * level);
}

for (const [name, entry] of Object.entries(expected)) {
  const frame = new Uint8Array(await readFile(`${folder}/${name}.bin`));
  const { dimension, quantizer, s } = frames.check(frame);
  assert.equal(s, entry.s ?? 0);
  if (LINEAR.includes(quantizer)) {
    const vector = frames.decode(frame, dimension);
    const near = (value, i) => Math.abs(vector[i] - value) <= 1e-6 * Math.abs(value);
    assert.ok(valuesOf(entry, quantizer).every(near), name);
    read++;
  } else { // so too the float32 frame: it has a value above 2^127, which no sum takes
    assert.throws(() => frames.decode(frame, dimension), FrameError);
  }
  assert.throws(() => frames.decode(frame, dimension + 1), FrameError);
  for (let place = 0; place < frame.length; place += 1 + (frame.length >> 8)) {
    const changed = frame.slice();
    changed[place] ^= 1;
    assert.throws(() => frames.decode(changed), FrameError);
    assert.throws(() => frames.decode(frame.subarray(0, place)), FrameError);
    refused += 2;
  }
}
console.log(`${read} golden frames read, ${refused} damaged ones refused`);
