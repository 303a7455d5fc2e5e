// A cache that is emptied piece by piece when memory runs out, before an allocation fails. The code that allocates
// needs no change for this.
// In a clone: npm run build && node dist/examples/retrying.js

import { type DeviceBuffer, formatBytes, MiB, openDevice, retrying } from 'cuda-mempool'

using device = openDevice('auto')
using memory = device.createPool({ maxPoolBytes: '64MiB' })

/** Results that can be computed again, oldest first. */
const cache: DeviceBuffer[] = []
const pool = retrying(memory, (bytes, attempt) => {
  const oldest = cache.shift()
  if (oldest === undefined) return false // the caller gets the OutOfMemoryError
  console.log(`no room for ${formatBytes(bytes)}, attempt ${attempt}: ${formatBytes(oldest.byteLength)} of cache freed`)
  oldest.free()
  return true
})
for (let result = 0; result < 7; result++) cache.push(pool.allocate(8 * MiB))

using request = pool.allocate(24 * MiB)
request.fill(1)
console.log(`${formatBytes(request.byteLength)} for the request, ${cache.length} results are still cached`)
for (const buffer of cache) buffer.free()
