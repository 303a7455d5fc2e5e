// A request waits for memory, but at most 100 ms.
// docs/recipes/wait-for-memory.md explains it. In a clone: npm run build && node dist/examples/wait-for-memory.js

import { type DeviceBuffer, MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: '16MiB' })

/** Null if memory stays short for `ms`. At most 8 such requests wait at a time; one more is a PoolError. */
async function allocateWithin(ms: number, bytes: number): Promise<DeviceBuffer | null> {
  const signal = AbortSignal.timeout(ms)
  try {
    return await pool.allocateSoon(bytes, { signal, maxWaiting: 8 })
  } catch (error) {
    if (signal.aborted) return null
    throw error
  }
}

const first = pool.allocate(12 * MiB)
console.log(`while the first buffer is held: ${await allocateWithin(100, 8 * MiB)}`)

const soon = allocateWithin(60_000, 8 * MiB)
first.free()
using second = await soon
console.log(`after it was freed: ${second === null ? 'nothing' : 'a buffer'}`)
