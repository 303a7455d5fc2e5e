import assert from 'node:assert/strict'
import { once } from 'node:events'
import { it } from 'node:test'
import { Worker } from 'node:worker_threads'
import { holdMemory } from './serving-thread.js'

it('a memory that a thread holds is held by no other thread, also after a worker was terminated', async () => {
  const hold = holdMemory('of a test')!
  assert.equal(holdMemory('of a test'), null)
  const other = holdMemory('of another test')!
  other.close()
  hold.close()
  const code = `import(${JSON.stringify(new URL('./serving-thread.js', import.meta.url).href)}).then(({ holdMemory }) => {
    const { parentPort } = require('node:worker_threads')
    parentPort.postMessage(holdMemory('of a test') !== null)
    parentPort.on('message', () => process.exit())
  })`
  for (const isTerminated of [false, true]) {
    const worker = new Worker(code, { eval: true })
    assert.deepEqual(await once(worker, 'message'), [true])
    assert.equal(holdMemory('of a test'), null)
    if (isTerminated) await worker.terminate()
    else {
      worker.postMessage('end')
      await once(worker, 'exit')
    }
    const next = holdMemory('of a test')
    assert.equal(next !== null, !isTerminated)
    next?.close()
  }
})
