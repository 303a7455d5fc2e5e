// Programs that fail within using blocks, and a thread that has a pool attached, for disposal.test.ts.

import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { attachPool } from '../src/core/device/attach.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { spillable } from '../src/core/pool/wrappers/spillable.js'

export const failures: Record<string, (error: Error) => void | Promise<void>> = {
  'during a capture'(error) {
    using device = openDevice('simulated')
    using pool = device.createPool()
    using stream = device.createStream()
    stream.beginCapture()
    using _buffer = pool.allocate(100, stream)
    throw error
  },
  'while a pool falls asleep'(error) {
    using device = openDevice('simulated')
    using pool = device.createPool()
    using _buffer = pool.allocate(1_000_000)
    void pool.sleep()
    throw error
  },
  'with a spillable buffer in use'(error) {
    using device = openDevice('simulated')
    using host = device.createHostPool()
    using set = spillable(device.createPool(), { host })
    using buffer = set.allocate(100)
    buffer.use()
    throw error
  },
  async 'with an arena lent'(error) {
    using device = openDevice('simulated')
    using queue = device.createArenaQueue({ bytes: 1_000_000, count: 1 })
    using _lease = await queue.take()
    throw error
  },
  'with a graph'(error) {
    using device = openDevice('simulated')
    using pool = device.createPool()
    using stream = device.createStream()
    using _graph = device.capture(stream, () => pool.allocate(100, stream))
    throw error
  },
  'on a lost device'(error) {
    const driver = new SimulatedDriver()
    using device = openDevice(driver)
    using pool = device.createPool()
    using buffer = pool.allocate(100)
    driver.failCall({ call: 'cuMemcpyHtoDAsync', code: 700 })
    try {
      buffer.write(new Uint8Array(4))
    } catch {}
    throw error
  },
  'with a buffer that debug mode finds fault with'(error) {
    using device = openDevice('simulated')
    using pool = device.createPool({ debug: true })
    using stream = device.createStream()
    using buffer = pool.allocate(100, stream)
    using event = device.createEvent()
    event.record(stream)
    const other = device.createStream()
    other.wait(event)
    buffer.noteUse(other, 'my library') // and the free on the first stream does not wait for it
    throw error
  },
  async 'while a thread has the pool attached'(error) {
    using device = openDevice('simulated')
    using pool = device.createSharedPool()
    const thread = new Worker(fileURLToPath(import.meta.url), { argv: ['attach'], workerData: pool.share() })
    await once(thread, 'message')
    throw error
  },
}

if (!isMainThread && process.argv[2] === 'attach') {
  const pool = attachPool(workerData)
  parentPort!.postMessage('attached')
  parentPort!.once('message', () => parentPort!.postMessage(pool.close()))
} else if (isMainThread && process.argv[1] === fileURLToPath(import.meta.url)) {
  const name = process.argv[2]
  await failures[name](new Error(`mine ${name}`))
}
