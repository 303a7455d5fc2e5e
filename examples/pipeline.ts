// Images go through the device on three streams: pinned memory, a kernel, and pinned memory again. While one image is
// computed, the next is copied to the device and the last one back. The program waits only for the slot that it needs.
// docs/recipes/pipeline.md explains it. In a clone: npm run build && node dist/examples/pipeline.js

import { openDevice } from 'cuda-mempool'

const PIXELS = 640 * 480
const IMAGES = 8

const SOURCE = `
extern "C" __global__ void grey(const unsigned char *rgb, float *grey, unsigned pixels) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < pixels) grey[at] = (rgb[3 * at] + rgb[3 * at + 1] + rgb[3 * at + 2]) / 765.f;
}
`

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: '512MiB' })
using host = device.createHostPool({ maxPoolBytes: '256MiB' })
using module = device.compileKernels(SOURCE, {
  simulated: {
    grey: ({ args, memory }) => {
      const rgb = memory.load(Uint8Array, args.pointer(0), 3 * args.uint32(2))
      const grey = Float32Array.from({ length: args.uint32(2) }, (_, at) => {
        return (rgb[3 * at]! + rgb[3 * at + 1]! + rgb[3 * at + 2]!) / 765
      })
      memory.store(args.pointer(1), grey)
    },
  },
})
const grey = module.kernel('grey')

const slots = Array.from({ length: 3 }, () => {
  const stream = device.createStream()
  return {
    stream,
    input: host.allocateArray(Uint8Array, 3 * PIXELS),
    rgb: pool.allocateArray(Uint8Array, 3 * PIXELS, stream),
    grey: pool.allocateArray(Float32Array, PIXELS, stream),
    output: host.allocateArray(Float32Array, PIXELS),
    done: Promise.resolve(),
  }
})

async function* camera(): AsyncGenerator<Uint8Array> {
  for (let image = 0; image < IMAGES; image++) yield new Uint8Array(3 * PIXELS).fill(30 * image)
}

const brightness: number[] = []
let count = 0
for await (const image of camera()) {
  const index = count++
  const slot = slots[index % slots.length]!
  await slot.done // its last image has come back
  slot.input.elements.set(image)
  slot.input.copyTo(slot.rgb)
  grey.launch({ grid: Math.ceil(PIXELS / 256), block: 256 }, slot.rgb, slot.grey, PIXELS)
  slot.output.copyFrom(slot.grey)
  slot.done = slot.stream.finished().then(() => {
    brightness[index] = slot.output.elements[0]!
  })
}
await Promise.all(slots.map(({ done }) => done))
console.log(`${count} images, brightness ${brightness.map(value => value.toFixed(2)).join(' ')}`)
for (const { input, rgb, grey, output } of slots) for (const array of [input, rgb, grey, output]) array.free()
