import assert from 'node:assert/strict'
import { test } from 'node:test'
import { markOfThread } from '../../../threads/os-thread.js'
import { inThread } from '../../driver-threads.worker.js'
import { openSimulated } from '../opened.fixture.js'
import { serve } from './served-driver.js'

const skip = markOfThread() === '' && 'this system does not tell which threads have ended'

test('ended threads are forgotten, except the last', { skip }, async () => {
  const name = 'served-driver.test'
  const serving = serve(openSimulated(), name)
  const shared = { kind: 'simulated', process: process.pid, name, owner: markOfThread(), origin: '' } as const
  for (let thread = 0; thread < 3; thread++) {
    await inThread(shared, 'threadStream')
    assert.equal(serving.callerCount, 1)
  }
})
