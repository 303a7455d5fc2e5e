// Requests wait for memory for at most 60 ms, and give up then.
// In a clone: npm run build && node dist/examples/wait-for-memory.js

import { setTimeout } from 'node:timers/promises'
import { type DeviceBuffer, MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: '16MiB' })

async function allocateSoon(bytes: number, signal: AbortSignal): Promise<DeviceBuffer> {
  let buffer = pool.tryAllocate(bytes)
  while (buffer === null) {
    await pool.whenAvailable(bytes, { signal })
    buffer = pool.tryAllocate(bytes)
  }
  return buffer
}

const requests = Array.from({ length: 8 }, async (_, request) => {
  using _buffer = await allocateSoon(8 * MiB, AbortSignal.timeout(60))
  await setTimeout(25)
  return request
})
for (const result of await Promise.allSettled(requests)) {
  console.log(result.status === 'fulfilled' ? `request ${result.value} is done` : result.reason.name)
}
