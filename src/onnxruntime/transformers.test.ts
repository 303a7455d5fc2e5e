// transformers.js on the memory of a host pool, with a model in a folder of this machine. CUDA_MEMPOOL_TRANSFORMERS
// names the folder of @huggingface/transformers, which is not a dependency.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import { KiB } from '../core/base/bytes.js'
import { OutOfMemoryError } from '../core/base/errors.js'
import { openDevice } from '../core/device/open.js'
import { smallModel } from './model.fixture.js'
import { serveOnnxRuntime } from './serve.js'

interface Model {
  (inputs: object): Promise<{ readonly y: { readonly data: Float32Array } }>
  dispose(): Promise<unknown>
}

/** The parts of transformers.js that are used here. */
interface Transformers {
  readonly env: { localModelPath: string; allowRemoteModels: boolean }
  readonly AutoModel: { from_pretrained(name: string, options: object): Promise<Model> }
  readonly Tensor: new (type: 'float32', data: Float32Array, shape: readonly number[]) => unknown
}

const WIDTH = 64
const folder = process.env.CUDA_MEMPOOL_TRANSFORMERS
const skip = folder === undefined ? 'set CUDA_MEMPOOL_TRANSFORMERS to the folder of @huggingface/transformers' : false
if (skip !== false) console.log(`skipped with transformers.js: ${skip}`)

describe('transformers.js', { skip }, () => {
  const models = mkdtempSync(join(tmpdir(), 'transformers-'))
  after(() => rmSync(models, { recursive: true }))
  mkdirSync(join(models, 'small', 'onnx'), { recursive: true })
  writeFileSync(join(models, 'small', 'onnx', 'model.onnx'), smallModel(WIDTH))
  writeFileSync(join(models, 'small', 'config.json'), '{ "model_type": "bert", "architectures": ["BertModel"] }')

  it('takes weights and activations from the pool, meets its limit as an error, and gives all back', async () => {
    const require = createRequire(import.meta.url)
    const main = require.resolve(folder!)
    const { env, AutoModel, Tensor } = require(main) as Transformers
    Object.assign(env, { localModelPath: models, allowRemoteModels: false })
    using device = openDevice('simulated')
    using pool = device.createHostPool({ maxPoolBytes: 512 * KiB, segmentBytes: 128 * KiB })
    using served = serveOnnxRuntime(pool, { library: createRequire(main).resolve('onnxruntime-node') })
    const options = { dtype: 'fp32', device: 'cpu', session_options: served.sessionOptions({}) }
    const model = await served.as('small', () => AutoModel.from_pretrained('small', options))
    assert.deepEqual(served.live(), [{ name: 'small', buffers: 1, bytes: WIDTH * WIDTH * 4 }])
    const run = (rows: number) =>
      served.as('small', () =>
        model({ x: new Tensor('float32', new Float32Array(rows * WIDTH).fill(2), [rows, WIDTH]) }),
      )
    assert.ok((await run(10)).y.data.every(value => value === 0.5))
    await assert.rejects(run(16 * KiB), OutOfMemoryError)
    assert.equal((await run(20)).y.data.length, 20 * WIDTH)
    await model.dispose()
    assert.deepEqual(served.live(), [])
    assert.equal(pool.stats().liveBytes, 0)
  })
})
