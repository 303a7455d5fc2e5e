// Two sessions of ONNX Runtime share a pool with a limit. A request that does not fit is answered with 503, and the
// server goes on. This is for the CPU; docs/onnxruntime.md shows it for a GPU. It needs onnxruntime-node:
// CUDA_MEMPOOL_ONNXRUNTIME names its folder if it is not installed here.
// In a clone: npm run build && node dist/examples/onnxruntime.js

import { createRequire } from 'node:module'
import { formatBytes, MiB, OutOfMemoryError, openDevice } from 'cuda-mempool'
import { serveOnnxRuntime } from 'cuda-mempool/onnxruntime'

const WIDTH = 8
/** y = relu(x · w) · w, with 0.5 on the diagonal of w, and x of any number of rows. */
const MODEL = Buffer.from(
  'CAg6/AIKEQoBeAoBdxIBYSIGTWF0TXVsCgwKAWESAWIiBFJlbHUKEQoBYgoBdxIBeSIGTWF0TXVsEgVzbWFsbCqMAggICAgQAUIB' +
    'd0qAAgAAAD8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' +
    'AAAAAD8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' +
    'AD8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD8A' +
    'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD9aFwoBeBISChAIARIMCgYSBHJvd3MKAggIYhcKAXkSEgoQCAESDAoG' +
    'EgRyb3dzCgIICEIECgAQDQ==',
  'base64',
)

const require = createRequire(import.meta.url)
const name = process.env.CUDA_MEMPOOL_ONNXRUNTIME ?? 'onnxruntime-node'
if (isInstalled()) await main()
else console.log('no onnxruntime-node: install it, or set CUDA_MEMPOOL_ONNXRUNTIME to its folder')

function isInstalled(): boolean {
  try {
    return require.resolve(name) !== ''
  } catch {
    return false
  }
}

async function main(): Promise<void> {
  const ort = require(name)
  using device = openDevice('simulated') // its host pool is real memory, for the CPU
  using pool = device.createHostPool({ maxPoolBytes: 4 * MiB, segmentBytes: 1 * MiB })
  using served = serveOnnxRuntime(pool, { library: require.resolve(name) })
  const create = () => ort.InferenceSession.create(MODEL, served.sessionOptions({}))
  const sessions = { first: await served.as('first', create), second: await served.as('second', create) }

  async function answer(model: 'first' | 'second', rows: number): Promise<string> {
    const x = new ort.Tensor('float32', new Float32Array(rows * WIDTH).fill(2), [rows, WIDTH])
    try {
      const { y } = await served.as(model, () => sessions[model].run({ x }))
      return `200: ${y.data.length} numbers, the first is ${y.data[0]}`
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
      return `503: ${error.message}`
    }
  }

  console.log(await answer('first', 100))
  console.log(await answer('second', (8 * MiB) / (WIDTH * 4))) // above the limit
  console.log(await answer('second', 100))
  for (const { name, bytes, buffers } of served.live()) console.log(`${name}: ${formatBytes(bytes)} in ${buffers}`)
  await sessions.first.release()
  await sessions.second.release()
}
