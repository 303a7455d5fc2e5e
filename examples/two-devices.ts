// Two GPUs. A batch is copied from one to the other. When the first runs full, its streams continue with memory of
// the second. Without a GPU this runs on two simulated ones; with one GPU it prints its needs.
// In a clone: npm run build && node dist/examples/two-devices.js

import { fallback, formatBytes, MiB, openDevices } from 'cuda-mempool'

const devices = openDevices(process.env.CUDA_MEMPOOL_DEVICE === 'simulated' ? 'simulated' : 'auto')
const [first, second] = devices
if (first === undefined || second === undefined) {
  console.log(`${first?.name}: this needs two GPUs, or CUDA_MEMPOOL_DEVICE=simulated for two in memory`)
} else if (!first.canAccessPeer(second)) {
  console.log('GPU 0 and GPU 1 have no way to each other: copyFrom still works, sharing a pool does not')
} else {
  using firstPool = first.createPool({ maxPoolBytes: 64 * MiB })
  using secondPool = second.createPool({ maxPoolBytes: 256 * MiB })
  console.log(`${first.name}, and beside it ${second.name}`)

  // A copy runs on the target's stream; an event orders it after the work on the source.
  using produced = first.createEvent()
  using batch = firstPool.allocate(16 * MiB)
  using copy = secondPool.allocate(16 * MiB)
  batch.fill(7)
  produced.record(batch.stream)
  copy.stream.wait(produced)
  copy.copyFrom(batch)
  batch.recordUse(copy.stream) // the first pool keeps the memory until the copy is done
  console.log(`copied ${formatBytes(copy.byteLength)} between them: ${(await copy.read(0, 4)).join(' ')}`)

  // When the first pool has no room, the second serves the first device's streams.
  using shared = fallback(firstPool, secondPool)
  const stream = first.createStream()
  const buffers = Array.from({ length: 6 }, () => shared.allocate(16 * MiB, stream))
  for (const [index, buffer] of buffers.entries()) buffer.fill(index)
  const found = buffers.map(buffer => `${buffer.readSync(0, 1)[0]} on device ${buffer.device}`)
  console.log(`six buffers of ${formatBytes(16 * MiB)} for one stream: ${found.join(', ')}`)
  for (const buffer of buffers) buffer.free()
}
for (const device of devices) device.close()
