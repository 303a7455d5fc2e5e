// Tenants of a server share a pool, each with a limit of its own. The tenant and the stream of a request go with it
// through every await, so that the code of a layer names neither.
// In a clone: npm run build && node dist/examples/tenants.js

import { AsyncLocalStorage } from 'node:async_hooks'
import { openDevice, type Stream, tagged } from 'cuda-mempool'

using device = openDevice('auto')
using memory = device.createPool()
const pool = tagged(memory, { limits: { free: '8MiB', paid: '64MiB' } })
const streams = new AsyncLocalStorage<Stream>()

async function layer(): Promise<number> {
  using weights = pool.zeros(Float32Array, 2 ** 20, streams.getStore())
  const [first = NaN] = await weights.read()
  return first
}

async function answer(tenant: 'free' | 'paid'): Promise<string> {
  using stream = device.createStream()
  const layers = async () => [await layer(), await layer()]
  return `${tenant}: ${await streams.run(stream, () => pool.inScope(tenant, layers))}`
}

const requests = (['free', 'free', 'free', 'paid', 'paid'] as const).map(answer)
for (const result of await Promise.allSettled(requests)) {
  console.log(result.status === 'fulfilled' ? result.value : result.reason.message)
}
console.table(pool.statsByTag(), ['peakRequestedBytes', 'allocations', 'maxPoolBytes'])
