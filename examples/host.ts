// Results come back from the device into pinned memory, with two batches in flight: while the device works on one,
// the host reads the other. No data is copied twice, and Node is never blocked.
// In a clone: npm run build && node dist/examples/host.js

import { formatBytes, MiB, openDevice } from 'cuda-mempool'

const BATCHES = 8
const COUNT = (1 * MiB) / Float32Array.BYTES_PER_ELEMENT

using device = openDevice('auto')
using pool = device.createPool()
using host = device.createHostPool({ maxPoolBytes: 64 * MiB })
const lanes = [device.createStream(), device.createStream()].map(stream => ({ stream, result: host.allocate(1 * MiB) }))

let intact = true
for (let batch = 0; batch < BATCHES + lanes.length; batch++) {
  const { stream, result } = lanes[batch % lanes.length]!
  await stream.finished() // from here on the host may use the memory of this lane
  const elements = result.view(Float32Array)
  if (batch >= lanes.length) intact &&= elements[0] === batch - lanes.length && elements[COUNT - 1] === elements[0]
  if (batch >= BATCHES) continue

  using input = host.allocateArray(Float32Array, COUNT) // pinned, and filled like any other array
  input.elements.fill(batch)
  using work = pool.allocateArray(Float32Array, COUNT, stream)
  input.copyTo(work)
  result.copyFrom(work)
} // `input` is freed here, and given out again once its copy is known complete

for (const { result } of lanes) result.free()
const { allocations, peakReservedBytes } = host.stats()
console.log(`${device.name}: ${BATCHES} batches ${intact ? 'came back intact' : 'are damaged'}`)
console.log(`${allocations} pinned buffers from ${formatBytes(peakReservedBytes)} of pinned memory`)
if (!intact) process.exitCode = 1
