// A hundred blocks of one size, allocated in advance: for messages, pages, or other data of a fixed size.
// In a clone: npm run build && node dist/examples/blocks.js

import { formatBytes, KiB, openDevice, PoolError } from 'cuda-mempool'

using device = openDevice('auto')
using pool = device.createBlockPool({ blockBytes: 4 * KiB, count: 100 })
console.log(`${pool.availableBlocks} of ${pool.count} blocks of ${formatBytes(pool.blockBytes)} available`)

const taken = Array.from({ length: 10 }, () => pool.allocate(pool.blockBytes))
console.log(`${pool.availableBlocks} available after ten were taken`)
for (const [index, block] of taken.entries()) block.fill(index)
const firstBytes = await Promise.all(taken.map(async block => (await block.read(0, 1))[0]))
console.log(`they begin with ${firstBytes.join(' ')}`)

for (const block of taken) block.free()
console.log(`${pool.availableBlocks} available after they were given back`)
try {
  taken[0]?.free()
} catch (error) {
  if (!(error instanceof PoolError)) throw error
  console.log(`a second time is refused: ${error.message}`)
}
