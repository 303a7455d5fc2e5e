// A pool of managed memory, which the driver moves between host and device as it is used. With a limit above the
// device's memory it may hold more than the device has; moving pages then takes time. A device without managed memory
// throws an error that says so.
// In a clone: npm run build && node dist/examples/managed.js

import { type CachingPool, formatBytes, MiB, openDevice, PoolError } from 'cuda-mempool'

using device = openDevice('auto')

function openPool(): CachingPool {
  const maxPoolBytes = 128 * MiB // may be more than the device's memory
  try {
    return device.createPool({ backing: 'managed', maxPoolBytes })
  } catch (error) {
    if (!(error instanceof PoolError)) throw error
    console.log(error.message)
    return device.createPool({ maxPoolBytes })
  }
}

using pool = openPool()
using large = pool.allocate(96 * MiB)
large.fill(1)
using part = pool.allocate(1 * MiB)
part.copyFrom(large, 0, large.byteLength - part.byteLength)
const bytes = await part.read()
const { backing, stats } = pool.snapshot()
console.log(`${device.name}: ${formatBytes(stats.reservedBytes)} of backing '${backing}'`)
console.log(
  `the last ${formatBytes(bytes.length)} ${bytes.every(byte => byte === 1) ? 'arrived intact' : 'are damaged'}`,
)
