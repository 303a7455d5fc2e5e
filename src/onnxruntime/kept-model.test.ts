// ONNX Runtime with a model that the keeper holds in memory of the host: the model itself, or its external data.

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { KeepWorld, none } from '../keep/keep.fixture.js'
import { type Installed, installedOnnxRuntime, type OnnxSession } from './installed.fixture.js'
import { smallModel, smallWeights } from './model.fixture.js'

const WIDTH = 64
const installed = installedOnnxRuntime()
const missing = process.platform === 'linux' ? installed : `needs Linux, not ${process.platform}`

describe('a kept model with ONNX Runtime', { skip: typeof missing === 'string' && missing }, () => {
  const { ort } = installed as Installed
  let world: KeepWorld
  before(async () => {
    await answerOf(await ort.InferenceSession.create(smallModel(WIDTH))) // ONNX Runtime opens files of its own
    world = new KeepWorld()
  })
  after(() => world.discard())

  /** A file that one process has kept, as the next process finds it. */
  async function keptFile(name: string, contents: Uint8Array) {
    const options = { bytes: contents.length }
    const first = await world.openKeep()
    const written = await first.file(name, options, path => writeFileSync(path, contents))
    written.close()
    const second = await world.openKeep()
    return second.file(name, options, none)
  }

  async function answerOf(session: OnnxSession): Promise<number[]> {
    const x = new ort.Tensor('float32', new Float32Array(WIDTH).fill(2), [1, WIDTH])
    const { y } = await session.run({ x })
    await session.release()
    return [...new Set(y.data)]
  }

  it('a session is made of the path of a kept model', async () => {
    using model = await keptFile('model', smallModel(WIDTH))
    assert.deepEqual(await answerOf(await ort.InferenceSession.create(model.path)), [0.5])
  })

  it('external data come from a kept file by its contents, and not by its path', async () => {
    using weights = await keptFile('weights', smallWeights(WIDTH))
    const externalData = [{ path: 'weights.bin', data: readFileSync(weights.path) }]
    const model = smallModel(WIDTH, 'weights.bin')
    assert.deepEqual(await answerOf(await ort.InferenceSession.create(model, { externalData })), [0.5])

    // ONNX Runtime resolves the path, and a file in memory has no place in a folder.
    const byPath = { session: { model_external_initializers_file_folder_path: dirname(weights.path) } }
    const named = smallModel(WIDTH, basename(weights.path))
    await assert.rejects(ort.InferenceSession.create(named, { extra: byPath }), /External data path validation failed/)
  })

  it('all is closed at the end', () => world.end())
})
