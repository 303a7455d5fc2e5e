// Three models take turns on a device that has room for one and a half. Each has a pool for its weights. Before a model
// runs, the one that ran longest ago goes to sleep: its weights move to the host, and its memory to the device.
// Addresses stay. docs/onnxruntime.md gives sessions of ONNX Runtime such pools.
// In a clone: npm run build && node dist/examples/models-in-turn.js

import { type DeviceArray, formatBytes, MiB, openDevice } from 'cuda-mempool'

const MODEL_BYTES = 128 * MiB
const LAYERS = 4
const ROOM_BYTES = 1.5 * MODEL_BYTES

using device = openDevice('auto')
using host = device.createHostPool({ maxPoolBytes: 4 * MODEL_BYTES })

class Model {
  readonly pool = device.createPool()
  private readonly layers: readonly DeviceArray<Float32Array>[]

  constructor(readonly weight: number) {
    const weights = new Float32Array(MODEL_BYTES / 4 / LAYERS).fill(weight)
    this.layers = Array.from({ length: LAYERS }, () => this.pool.upload(weights))
  }

  async run(): Promise<number> {
    return (await this.layers.at(-1)!.subarray(-1).read())[0]!
  }
}

/** The models that are awake, the one that ran longest ago first. */
const awake: Model[] = []

/** Weights do not change: the copy of a model's first sleep serves all others. */
async function makeRoom(): Promise<void> {
  while ((awake.length + 1) * MODEL_BYTES > ROOM_BYTES) await awake.shift()!.pool.sleep({ into: host, unchanged: true })
}

const models: Model[] = []
for (const weight of [1, 2, 3]) {
  await makeRoom()
  const model = new Model(weight)
  models.push(model)
  awake.push(model)
}
for (const index of [0, 1, 2, 0, 2]) {
  const model = models[index]!
  if (model.pool.asleep) {
    await makeRoom()
    await model.pool.wake({ keepCopy: true })
    awake.push(model)
  }
  const result = await model.run()
  const reserved = models.reduce((sum, { pool }) => sum + pool.stats().reservedBytes, 0)
  console.log(`model ${index} gives ${result}, ${formatBytes(reserved)} on the device`)
  if (result !== model.weight || reserved > ROOM_BYTES) process.exitCode = 1
}
console.log(`${formatBytes(host.stats().liveBytes)} of weights on the host`)
for (const { pool } of models) pool.close()
