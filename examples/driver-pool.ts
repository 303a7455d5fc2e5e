// The driver's own pools: the device's default pool, and a new pool with a limit, whose attributes are properties.
// Some tutorials set the reserved bytes of a pool, which CUDA refuses: allocate that much once and free it instead.
// In a clone: npm run build && node dist/examples/driver-pool.js

import { formatBytes, MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto')
using stream = device.createStream()

using usual = device.defaultDriverPool()
console.log(`the default pool is current: ${usual.isCurrent}; gives back above ${usual.releaseThresholdBytes} bytes`)

using pool = device.createDriverPool({ maxPoolBytes: 256 * MiB })
pool.releaseThresholdBytes = Infinity // keep freed memory
pool.allowOpportunisticReuse = false
pool.allocate(96 * MiB, stream).free()
console.log(`${formatBytes(pool.reservedBytes)} reserved, ${formatBytes(pool.usedBytes)} used`)

const buffer = pool.allocate(96 * MiB, stream)
buffer.fill(7)
console.log(`${formatBytes(pool.usedBytes)} used of ${formatBytes(pool.reservedBytes)} reserved`)
buffer.free()

console.log(`freed, and given back before the stream is done: ${formatBytes(pool.trimTo(0))}`)
stream.synchronize()
console.log(`and after: ${formatBytes(pool.trimTo(0))}`)
pool.resetPeaks()
console.log(`peak after a reset: ${formatBytes(pool.peakUsedBytes)}`)
