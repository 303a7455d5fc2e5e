// Two streams share memory: one fills frames, and the other copies them. The host waits only at the end, and each
// frame's memory returns to the pool while the streams are still at work.
// In a clone: npm run build && node dist/examples/streams.js

import { formatBytes, MiB, openDevice } from 'cuda-mempool'

const FRAMES = 32
const FRAME_BYTES = 4 * MiB

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: 256 * MiB })
using producer = device.createStream()
using consumer = device.createStream()
using produced = device.createEvent()
using sums = pool.allocate(FRAMES, consumer)

for (let frame = 0; frame < FRAMES; frame++) {
  using pixels = pool.allocate(FRAME_BYTES, producer)
  pixels.fill(frame)
  produced.record(producer)
  consumer.wait(produced) // the consumer continues when the pixels are written
  pixels.recordUse(consumer) // the pool keeps the pixels until the consumer is done
  sums.copyFrom(pixels, frame, 0, 1)
} // freed here: at once for this program, and in the order of both streams for the device

const bytes = await sums.read()
const intact = bytes.every((value, frame) => value === frame)
const { allocations, peakReservedBytes } = pool.stats()
console.log(`${device.name}: ${FRAMES} frames ${intact ? 'arrived intact' : 'are damaged'}`)
console.log(`${allocations} allocations from at most ${formatBytes(peakReservedBytes)} of the device's memory`)
if (!intact) process.exitCode = 1
