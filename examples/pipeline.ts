// Frames go through the device on four streams, with two frames in flight on each: pinned memory, a kernel, and pinned
// memory again. The program waits only for the slot that it needs next. An abort ends it after the frames under way.
// In a clone: npm run build && node dist/examples/pipeline.js

import { openDevice } from 'cuda-mempool'

const BYTES = 640 * 480 * 3
const FRAMES = 12

const SOURCE = `
extern "C" __global__ void normalize(const unsigned char *in, float *out, unsigned count) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) out[index] = in[index] / 255.f;
}
`

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: '512MiB' })
using host = device.createHostPool({ maxPoolBytes: '256MiB' })
using module = device.compileKernels(SOURCE, {
  simulated: {
    normalize: ({ args, memory }) => {
      const bytes = memory.load(Uint8Array, args.pointer(0), args.uint32(2))
      memory.store(
        args.pointer(1),
        Float32Array.from(bytes, byte => byte / 255),
      )
    },
  },
})
const normalize = module.kernel('normalize')

const streams = [-1, 0, 0, 0].map(priority => device.createStream({ priority }))
const slots = [...streams, ...streams].map(stream => ({
  stream,
  input: host.allocateArray(Uint8Array, BYTES),
  output: host.allocateArray(Float32Array, BYTES),
  pixels: pool.allocateArray(Uint8Array, BYTES, stream),
  normalized: pool.allocateArray(Float32Array, BYTES, stream),
  done: Promise.resolve(),
}))

async function* camera(signal: AbortSignal): AsyncGenerator<Uint8Array> {
  for (let frame = 0; frame < FRAMES && !signal.aborted; frame++) yield new Uint8Array(BYTES).fill(frame)
}

const stop = new AbortController()
let frames = 0
let sum = 0
for await (const frame of camera(stop.signal)) {
  const slot = slots[frames++ % slots.length]!
  await slot.done
  slot.input.elements.set(frame)
  slot.input.copyTo(slot.pixels)
  normalize.launch({ grid: Math.ceil(BYTES / 256), block: 256 }, slot.pixels, slot.normalized, BYTES)
  slot.output.copyFrom(slot.normalized)
  slot.done = slot.stream.finished().then(() => {
    sum += slot.output.elements[0]!
  })
}
await Promise.all(slots.map(({ done }) => done))
for (const { input, output, pixels, normalized } of slots)
  for (const held of [input, output, pixels, normalized]) held.free()
console.log(`${device.name}: ${frames} frames, their first pixels add up to ${(sum * 255).toFixed(3)}`)
if (Math.abs(sum * 255 - 66) > 1e-3) process.exitCode = 1
