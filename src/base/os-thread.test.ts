import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { hasEnded, markOfThread } from './os-thread.js'

const skip = markOfThread() === '' && 'this system does not tell which threads have ended'

test('a thread has ended when it is gone, or its number is another thread of now', { skip }, async () => {
  const mine = markOfThread()
  assert.equal(hasEnded(mine), false)
  assert.equal(hasEnded(`${mine}0`), true)
  const code = `
    const { parentPort, workerData } = require('node:worker_threads')
    import(workerData).then(({ markOfThread }) => parentPort.postMessage(markOfThread()))
    parentPort.on('message', () => {})`
  const url = new URL('./os-thread.js', import.meta.url).href
  const worker = new Worker(code, { eval: true, workerData: url })
  const [other] = (await once(worker, 'message')) as [string]
  assert.notEqual(other, mine)
  assert.equal(hasEnded(other), false)
  await worker.terminate()
  assert.equal(hasEnded(other), true)
})

test('where the system tells nothing, no thread has ended', () => {
  assert.equal(hasEnded(''), false)
})
