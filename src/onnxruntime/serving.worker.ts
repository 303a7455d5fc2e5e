// A worker that serves a pool to ONNX Runtime and runs a session of its own. It ends when it gets a message: after it
// has released all, or with the session and the service open.

import { once } from 'node:events'
import { createRequire } from 'node:module'
import { parentPort, workerData } from 'node:worker_threads'
import { openDevice } from '../core/device/open.js'
import type { OnnxRuntime } from './installed.fixture.js'
import { smallModel } from './model.fixture.js'
import { serveOnnxRuntime } from './serve.js'

const WIDTH = 64
const { library, end } = workerData as { readonly library: string; readonly end: 'release' | 'exit' }
const ort = createRequire(import.meta.url)(library) as OnnxRuntime
const device = openDevice('simulated')
const served = serveOnnxRuntime(device.createHostPool(), { library })
const create = () => ort.InferenceSession.create(smallModel(WIDTH), served.sessionOptions())
const session = await served.createSession('model', create)
const { y } = await session.run({ x: new ort.Tensor('float32', new Float32Array(WIDTH).fill(2), [1, WIDTH]) })
parentPort!.postMessage(y.data[0])
await once(parentPort!, 'message')
if (end === 'release') {
  await session.release()
  served.close()
}
process.exit()
