// Three models take turns on a device that has room for one and a half. Each has a pool for its weights. Before a
// model runs, the one that ran longest ago goes to sleep: its weights move to the host, and its memory to the device.
// Addresses stay. The models are sessions of ONNX Runtime where onnxruntime-node has its CUDA provider, else captured
// graphs. CUDA_MEMPOOL_ONNXRUNTIME names the folder of the package if it is not installed here.
// In a clone: npm run build && node dist/examples/models-in-turn.js

import { createRequire } from 'node:module'
import {
  type CachingPool,
  type DeviceArray,
  formatBytes,
  type Graph,
  MiB,
  NoLibraryError,
  openDevice,
} from 'cuda-mempool'
import { type ServedOnnxRuntime, serveOnnxRuntime } from 'cuda-mempool/onnxruntime'

const MODEL_BYTES = 128 * MiB
const ROOM_BYTES = 1.5 * MODEL_BYTES
const ROWS = 1024
const COLUMNS = MODEL_BYTES / 4 / ROWS

using device = openDevice('auto')
using stream = device.createStream()
using outputs = device.createPool()
using host = device.createHostPool({ maxPoolBytes: 4 * MODEL_BYTES, segmentBytes: 64 * MiB })

const require = createRequire(import.meta.url)
const packageName = process.env.CUDA_MEMPOOL_ONNXRUNTIME ?? 'onnxruntime-node'
const ort = installed()
using served = serve()

// biome-ignore lint/suspicious/noExplicitAny: onnxruntime-node is not a dependency
function installed(): any {
  try {
    return require(packageName)
  } catch {
    return null
  }
}

/** A model with a pool for its weights. Its result is the first of them. */
interface Model {
  readonly name: string
  readonly pool: CachingPool
  run(): Promise<number>
  close(): Promise<void>
}

/** A graph copies the weight to the output. */
class GraphModel implements Model {
  readonly pool: CachingPool = device.createPool({ backing: 'virtual' })
  private readonly weights: DeviceArray<Float32Array>
  private readonly output: DeviceArray<Float32Array>
  private readonly graph: Graph

  constructor(
    readonly name: string,
    weight: number,
  ) {
    this.weights = this.pool.allocateArray(Float32Array, MODEL_BYTES / 4, stream)
    this.weights.write(new Float32Array(1024).fill(weight))
    this.output = outputs.allocateArray(Float32Array, 1, stream)
    stream.beginCapture()
    this.output.copyFrom(this.weights.subarray(0, 1))
    this.graph = stream.endCapture()
  }

  async run(): Promise<number> {
    this.graph.launch(stream)
    const [result = NaN] = await this.output.read()
    return result
  }

  async close(): Promise<void> {
    this.graph.close()
    this.output.free()
    this.pool.close()
  }
}

/** A session takes its weights from its own pool, and the memory of its runs from `outputs`. */
class SessionModel implements Model {
  private constructor(
    readonly name: string,
    readonly pool: CachingPool,
    // biome-ignore lint/suspicious/noExplicitAny: onnxruntime-node is not a dependency
    private readonly session: any,
  ) {}

  static async load(name: string, weight: number, served: ServedOnnxRuntime): Promise<Model> {
    const pool = device.createPool({ backing: 'virtual' })
    const options = served.sessionOptions({ executionProviders: ['cuda'] })
    const create = () => ort.InferenceSession.create(onnxModel(weight), options)
    return new SessionModel(name, pool, await served.as(name, create, { pool }))
  }

  async run(): Promise<number> {
    const x = new ort.Tensor('float32', new Float32Array(ROWS).fill(1, 0, 1), [1, ROWS])
    const { y } = await served!.as(this.name, () => this.session.run({ x }))
    return y.data[0]
  }

  async close(): Promise<void> {
    await this.session.release()
    this.pool.close()
  }
}

/** The file of a model: y = x · w, where all of w is `weight`. */
function onnxModel(weight: number): Buffer {
  const varint = (value: number): number[] =>
    value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))]
  const int = (field: number, value: number) => Buffer.from([field * 8, ...varint(value)])
  const bytes = (field: number, ...parts: readonly Uint8Array[]) => {
    const content = Buffer.concat(parts)
    return Buffer.concat([Buffer.from([field * 8 + 2, ...varint(content.length)]), content])
  }
  const text = (field: number, content: string) => bytes(field, Buffer.from(content))
  const FLOAT = 1
  const matrix = (field: number, name: string, columns: number) => {
    const shape = bytes(2, bytes(1, int(1, 1)), bytes(1, int(1, columns)))
    return bytes(field, text(1, name), bytes(2, bytes(1, int(1, FLOAT), shape)))
  }
  const raw = new Uint8Array(new Float32Array(ROWS * COLUMNS).fill(weight).buffer)
  const weights = bytes(5, int(1, ROWS), int(1, COLUMNS), int(2, FLOAT), text(8, 'w'), bytes(9, raw))
  const product = bytes(1, text(1, 'x'), text(1, 'w'), text(2, 'y'), text(4, 'MatMul'))
  const graph = bytes(7, product, text(2, 'model'), weights, matrix(11, 'x', ROWS), matrix(12, 'y', COLUMNS))
  return Buffer.concat([int(1, 8), graph, bytes(8, text(1, ''), int(2, 13))])
}

/** ONNX Runtime on `outputs`; null without its package, its CUDA provider or a GPU. */
function serve(): ServedOnnxRuntime | null {
  if (ort === null || device.driver.simulated) return null
  try {
    return serveOnnxRuntime(outputs, { library: require.resolve(packageName) })
  } catch (error) {
    if (!(error instanceof NoLibraryError)) throw error
    console.log(error.message)
    return null
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
  const model = served === null ? new GraphModel(name, index + 1) : await SessionModel.load(name, index + 1, served)
  models.push(model)
  awake.push(model)
}

for (const index of [0, 1, 2, 0, 2]) {
  const model = models[index]!
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
const kind = served === null ? 'graphs' : `sessions of ONNX Runtime ${served.version}`
console.log(`${kind} on ${device.name}: ${formatBytes(host.stats().liveBytes)} of weights on the host`)
for (const model of models) await model.close()
