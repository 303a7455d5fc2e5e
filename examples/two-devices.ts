// Two GPUs. A batch is copied from one to the other, and a kernel of the second reads the memory of the first. When the
// first runs full, its streams continue with memory of the second. Without a GPU this runs on two simulated ones.
// In a clone: npm run build && node dist/examples/two-devices.js

import { fallback, formatBytes, MiB, openDevices } from 'cuda-mempool'

const SOURCE = 'extern "C" __global__ void first(const float *from, float *to) { *to = *from; }'

const devices = openDevices(process.env.CUDA_MEMPOOL_DEVICE === 'simulated' ? 'simulated' : 'auto')
const [first, second] = devices
if (first === undefined || second === undefined) {
  console.log(`${first?.name}: this needs two GPUs, or CUDA_MEMPOOL_DEVICE=simulated for two in memory`)
} else if (!first.canAccessPeer(second)) {
  console.log('GPU 0 and GPU 1 have no way to each other: copyFrom still works, sharing a pool does not')
} else {
  using firstPool = first.createPool({ maxPoolBytes: 64 * MiB })
  using secondPool = second.createPool({ maxPoolBytes: 256 * MiB })
  using firstStream = first.createStream()
  using secondStream = second.createStream()
  using produced = first.createEvent()
  console.log(`${first.name}, and beside it ${second.name}`)

  // A copy runs on the target's stream; an event orders it after the work on the source.
  using batch = firstPool.upload(new Float32Array(4 * MiB).fill(7), firstStream)
  using copy = secondPool.allocateArray(Float32Array, batch.length, secondStream)
  produced.record(firstStream)
  secondStream.wait(produced)
  copy.copyFrom(batch)
  console.log(`copied ${formatBytes(copy.byteLength)} between them: ${(await copy.read())[0]}`)

  // A kernel needs access; only copies do without.
  firstPool.setAccess(second, 'readWrite')
  using module = second.compileKernels(SOURCE, {
    simulated: {
      first: ({ args, memory }) => memory.store(args.pointer(1), memory.load(Float32Array, args.pointer(0), 1)),
    },
  })
  copy.fill(0)
  module.kernel('first').launch({ grid: 1, block: 1, stream: secondStream }, batch, copy)
  console.log(`a kernel of the second read ${(await copy.read())[0]} from the first`)

  // When the first pool has no room, the second serves the first device's streams.
  using shared = fallback(firstPool, secondPool)
  const buffers = Array.from({ length: 6 }, () => shared.allocate(16 * MiB, firstStream))
  for (const [index, buffer] of buffers.entries()) buffer.fill(index)
  const found = buffers.map(buffer => `${buffer.readSync(0, 1)[0]} on device ${buffer.device}`)
  console.log(`six buffers of ${formatBytes(16 * MiB)} for one stream: ${found.join(', ')}`)
  for (const buffer of buffers) buffer.free()
}
for (const device of devices) device.close()
