// Three models take turns on a device that has room for one and a half. Each has a pool for its weights. Before a
// model runs, the one that ran longest ago goes to sleep: its weights move to the host, and its memory to the device.
// Addresses stay, so a graph that was captured before runs again after the wake.
// Run: npm run build && node dist/examples/models-in-turn.js

import {
  type CachingPool,
  type DeviceArray,
  formatBytes,
  type Graph,
  MiB,
  openDevice,
  parseDeviceChoice,
} from 'cuda-mempool'

const MODEL_BYTES = 128 * MiB
const ROOM_BYTES = 1.5 * MODEL_BYTES

using device = openDevice(parseDeviceChoice(process.env.CUDA_MEMPOOL_DEVICE ?? 'auto'))
using stream = device.createStream()
using outputs = device.createPool()
using host = device.createHostPool({ maxPoolBytes: 3 * MODEL_BYTES, segmentBytes: 64 * MiB })

/** Its result is the first of its weights, which a graph copies to the output. */
class Model {
  readonly pool: CachingPool = device.createPool({ backing: 'virtual' })
  private readonly weights: DeviceArray<Float32Array<ArrayBuffer>>
  private readonly output: DeviceArray<Float32Array<ArrayBuffer>>
  private readonly graph: Graph

  constructor(
    readonly name: string,
    weight: number,
  ) {
    this.weights = this.pool.allocateArray(Float32Array, MODEL_BYTES / 4, stream)
    this.weights.write(new Float32Array(1024).fill(weight))
    this.output = outputs.allocateArray(Float32Array, 1, stream)
    stream.beginCapture()
    this.output.buffer.copyFrom(this.weights.buffer, 0, 0, 4)
    this.graph = stream.endCapture()
  }

  async run(): Promise<number> {
    this.graph.launch(stream)
    const [result] = await this.output.read()
    return result
  }

  close(): void {
    this.graph.close()
    this.output.free()
    this.pool.close()
  }
}

/** The models that are awake, the one that ran longest ago first. */
const awake: Model[] = []

/** Makes room for a model and wakes it. Its weights do not change, so the copy of its first sleep serves all others. */
async function prepare(model: Model): Promise<void> {
  if (awake.includes(model)) return
  while ((awake.length + 1) * MODEL_BYTES > ROOM_BYTES) await awake.shift()!.pool.sleep({ into: host, unchanged: true })
  if (model.pool.asleep) await model.pool.wake({ keepCopy: true })
  awake.push(model)
}

const models: Model[] = []
for (const [index, name] of ['first', 'second', 'third'].entries()) {
  while ((awake.length + 1) * MODEL_BYTES > ROOM_BYTES) await awake.shift()!.pool.sleep({ into: host })
  const model = new Model(name, index + 1)
  models.push(model)
  awake.push(model)
}

for (const index of [0, 1, 2, 0, 2]) {
  const model = models[index]
  const start = performance.now()
  await prepare(model)
  const readyMs = performance.now() - start
  const result = await model.run()
  const reserved = models.reduce((sum, { pool }) => sum + pool.stats().reservedBytes, 0)
  console.log(
    `the ${model.name} model gives ${result}; ready in ${readyMs.toFixed(1)} ms, ${formatBytes(reserved)} on the device`,
  )
  if (result !== index + 1 || reserved > ROOM_BYTES) process.exitCode = 1
}
console.log(`${device.name}: ${formatBytes(host.stats().liveBytes)} of weights on the host`)
for (const model of models) model.close()
