// Two models take turns on a device with room for one. Before one runs, the other goes to sleep: its weights move to
// the host, and its memory to the device. Addresses stay.
// docs/recipes/models-in-turn.md explains it. In a clone: npm run build && node dist/examples/models-in-turn.js

import { formatBytes, MiB, openDevice } from 'cuda-mempool'

const MODEL_BYTES = 64 * MiB

using device = openDevice('auto')
using host = device.createHostPool({ maxPoolBytes: 3 * MODEL_BYTES })

function load(weight: number) {
  const pool = device.createPool({ maxPoolBytes: 2 * MODEL_BYTES })
  const weights = pool.upload(new Float32Array(MODEL_BYTES / 4).fill(weight))
  return { pool, weights, run: async () => (await weights.subarray(-1).read())[0] }
}

type Model = ReturnType<typeof load>
let awake: Model | undefined
let turn: Promise<unknown> = Promise.resolve()

/** Puts the model that is awake to sleep. Weights do not change, so the copy of a first sleep serves all others. */
async function makeRoom(): Promise<void> {
  await awake?.pool.sleep({ into: host, unchanged: true })
  awake = undefined
}

/** Runs a model in its turn, after all runs requested before. */
function run(model: Model): Promise<number | undefined> {
  const result = turn.then(async () => {
    if (awake !== model) {
      await makeRoom()
      await model.pool.wake({ keepCopy: true })
      awake = model
    }
    return await model.run()
  })
  turn = result.catch(() => {})
  return result
}

const first = load(1)
awake = first
await makeRoom()
const second = load(2)
awake = second

const results = await Promise.all([first, second, second, first].map(run))
console.log(`results: ${results.join(' ')}`)
const reserved = first.pool.stats().reservedBytes + second.pool.stats().reservedBytes
console.log(`${formatBytes(reserved)} on the device, ${formatBytes(host.stats().liveBytes)} on the host`)
for (const { pool, weights } of [first, second]) {
  weights.free()
  pool.close()
}
