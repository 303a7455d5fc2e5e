// The driver's own pools: the device's default pool, and a new pool with a limit and all of the driver's attributes.
// Some tutorials set the reserved bytes of a pool; that is refused, and the error names an alternative.
// In a clone: npm run build && node dist/examples/driver-pool.js

import { formatBytes, MiB, openDevice, parseDeviceChoice } from 'cuda-mempool'

using device = openDevice(parseDeviceChoice(process.env.CUDA_MEMPOOL_DEVICE ?? 'auto'))
using stream = device.createStream()

using usual = device.defaultDriverPool()
console.log(`the default pool is current: ${usual.isCurrent}; gives back above ${usual.releaseThresholdBytes} bytes`)

using pool = device.createDriverPool({ maxPoolBytes: 256 * MiB })
pool.releaseThresholdBytes = Infinity // keep freed memory
pool.allowOpportunisticReuse = false
console.table(pool.attributes())

const buffer = pool.allocate(96 * MiB, stream)
buffer.fill(7)
console.log(`${formatBytes(pool.usedBytes)} used of ${formatBytes(pool.reservedBytes)} reserved`)
buffer.free()

try {
  pool.setAttribute('cudaMemPoolAttrReservedMemCurrent', 64 * MiB)
} catch (error) {
  console.log((error as Error).message)
}

console.log(`freed, and given back before the stream is done: ${formatBytes(pool.trimTo(0))}`)
stream.synchronize()
console.log(`and after: ${formatBytes(pool.trimTo(0))}`)
pool.resetPeaks()
console.log(`peak after a reset: ${formatBytes(pool.peakUsedBytes)}`)
