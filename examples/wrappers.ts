// One pool for a whole program, in layers. Each kind of memory has a limit of its own. When memory runs out, a cache
// is emptied piece by piece, and the allocation is tried again. The code that allocates needs no change for this.
// In a clone: npm run build && node dist/examples/wrappers.js

import { type DeviceBuffer, formatBytes, MiB, OutOfMemoryError, openDevice, retrying, tagged } from 'cuda-mempool'

using device = openDevice('auto')
using memory = device.createPool({ maxPoolBytes: 64 * MiB })

/** Results that can be computed again, oldest first. */
const cache: DeviceBuffer[] = []
const giving = retrying(memory, (bytes, attempt) => {
  const oldest = cache.shift()
  if (oldest === undefined) return false // the caller gets the OutOfMemoryError
  console.log(`no room for ${formatBytes(bytes)}, attempt ${attempt}: ${formatBytes(oldest.byteLength)} of cache freed`)
  oldest.free()
  return true
})
const pool = tagged(giving, { limits: { weights: '24MiB', requests: '32MiB', cache: Infinity } })

const weights = pool.inScope('weights', () => Array.from({ length: 3 }, () => pool.allocate(8 * MiB)))
pool.inScope('cache', () => {
  for (let result = 0; result < 4; result++) cache.push(pool.allocate(8 * MiB))
})

async function serve(bytes: number): Promise<void> {
  using input = pool.allocate(bytes)
  await input.read(0, 1)
  using output = pool.allocate(bytes) // counts for the scope of the call, also after the await
  output.copyFrom(input)
}

await pool.inScope('requests', () => serve(16 * MiB))
try {
  await pool.inScope('requests', () => serve(20 * MiB)) // twice 20 MiB is above the limit of requests
} catch (error) {
  if (!(error instanceof OutOfMemoryError)) throw error
  console.log(error.message)
}

console.table(pool.statsByTag(), ['requestedBytes', 'peakRequestedBytes', 'liveBuffers', 'maxPoolBytes'])
for (const buffer of [...weights, ...cache]) buffer.free()
