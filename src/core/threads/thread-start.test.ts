import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { CudaError, PoolError } from '../base/errors.js'
import { ThreadStart } from './thread-start.js'

/** A thread that begins, and then does what `then` says. */
function begin(start: ThreadStart, then: string): Worker {
  const code = `
    const { workerData: { buffer, url } } = require('node:worker_threads')
    import(url).then(({ ThreadStart }) => {
      const start = new ThreadStart(buffer)
      start.begin()
      ${then}
    })`
  const url = new URL('./thread-start.js', import.meta.url).href
  return new Worker(code, { eval: true, workerData: { buffer: start.buffer, url } })
}

test('await waits for a new thread without an event loop', async () => {
  const start = new ThreadStart()
  const worker = begin(start, 'start.succeed()')
  let looks = 0
  start.await('createPool', () => looks++)
  assert.ok(looks > 0)
  await once(worker, 'exit')
})

test('await notices a thread that ended while it started', async () => {
  const start = new ThreadStart()
  const worker = begin(start, 'process.exit()')
  assert.throws(() => start.await('createPool', () => {}), {
    name: 'PoolError',
    message: /^createPool: the thread that keeps the pool ended while it started/,
  })
  await once(worker, 'exit')
})

test('a thread that begins too late learns that it is unwanted', () => {
  const start = new ThreadStart()
  assert.throws(() => start.await('createPool', () => {}, 1), PoolError)
  assert.equal(new ThreadStart(start.buffer).begin(), false)
})

test('await throws the error of the new thread', () => {
  const refused = new CudaError('cuCtxSetCurrent', 999, 'CUDA_ERROR_UNKNOWN', 'as it was told')
  for (const error of [refused, new PoolError('the device is closed', 'ERR_DEVICE_CLOSED')]) {
    const start = new ThreadStart()
    const there = new ThreadStart(start.buffer)
    assert.equal(there.begin(), true)
    there.fail(error)
    assert.throws(() => start.await('createPool', () => {}), { ...error, message: error.message })
  }
})
