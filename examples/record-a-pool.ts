// Records the allocations of a program, and prints the peak. Given a file name, it writes the recording as a PyTorch
// memory snapshot, for `cuda-mempool replay` and for tools that read such snapshots.
// In a clone: npm run build && node dist/examples/record-a-pool.js [FILE]

import { formatBytes, MiB, openDevice } from 'cuda-mempool'
import { recorded } from 'cuda-mempool/trace'

using device = openDevice('auto')
using upstream = device.createPool()
const pool = recorded(upstream, { stacks: true })

for (let batch = 1; batch <= 8; batch++) {
  using input = pool.allocate(batch * MiB)
  using output = pool.allocate(input.byteLength / 2)
  output.copyFrom(input, 0, 0, output.byteLength)
}

const { allocations, peakRequestedBytes } = pool.trace()
console.log(`${allocations} allocations, at most ${formatBytes(peakRequestedBytes)} in use at once`)
const file = process.argv[2]
if (file !== undefined) pool.save(file)
