// Three models take turns on a device with room for two. Before a model runs that sleeps, the one that ran longest ago
// falls asleep: its weights move to the host, and its memory to the device. Addresses stay.
// docs/recipes/models-in-turn.md explains it. In a clone: npm run build && node dist/examples/models-in-turn.js

import { MiB, openDevice } from 'cuda-mempool'

const MODEL_BYTES = 64 * MiB

using device = openDevice('auto')
await using shelf = device.createShelf<() => Promise<number | undefined>>({ budgetBytes: 2 * MODEL_BYTES })

for (const weight of [1, 2, 3]) {
  shelf.add(`model ${weight}`, {
    bytes: MODEL_BYTES,
    unchanged: true, // weights: only a first sleep copies them
    load: pool => {
      const weights = pool.upload(new Float32Array(MODEL_BYTES / 4).fill(weight))
      return async () => (await weights.subarray(-1).read())[0]
    },
  })
}

const requests = [1, 2, 2, 3, 1, 2]
const results = await Promise.all(
  requests.map(request => shelf.use(`model ${request}`, run => run(), { signal: AbortSignal.timeout(10_000) })),
)
console.log(`results: ${results.join(' ')}`)
console.log(`${shelf}`)
