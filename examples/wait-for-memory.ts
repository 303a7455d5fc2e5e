// Requests wait for memory for at most 60 ms, and give up then.
// In a clone: npm run build && node dist/examples/wait-for-memory.js

import { setTimeout } from 'node:timers/promises'
import { MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: '16MiB' })

const requests = Array.from({ length: 8 }, async (_, request) => {
  using _buffer = await pool.allocateSoon(8 * MiB, { signal: AbortSignal.timeout(60) })
  await setTimeout(25)
  return request
})
for (const result of await Promise.allSettled(requests)) {
  console.log(result.status === 'fulfilled' ? `request ${result.value} is done` : result.reason.name)
}
