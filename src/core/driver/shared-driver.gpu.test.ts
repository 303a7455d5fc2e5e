// One GPU in several threads, each with a driver of its own. Fails without a GPU.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { CU_STREAM_NON_BLOCKING } from './constants.js'
import { inThread } from './driver-threads.worker.js'
import { openFirst } from './native/gpu.fixture.js'
import type { NativeDriver } from './native/native-driver.js'
import { shareDriver } from './shared-driver.js'

describe('a GPU in several threads', () => {
  let driver: NativeDriver
  before(() => {
    driver = openFirst()
  })
  after(() => driver?.cuDevicePrimaryCtxRelease(0))

  test('work of several threads at once is not mixed up', async () => {
    const shared = shareDriver(driver)
    const results = await Promise.all([1, 2, 3].map(value => inThread(shared, 'work', value, 50)))
    assert.deepEqual(results, [0, 0, 0])
  })

  test('one thread registers memory; another copies to it and unregisters it', async () => {
    const memory = new SharedArrayBuffer(4096)
    const host = new Uint8Array(memory)
    const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
    const source = driver.cuMemAlloc(512)
    driver.cuMemsetD8Async(source, 9, 512, stream)
    await inThread(shareDriver(driver), 'registerAndRead', memory, source, stream)
    driver.cuStreamSynchronize(stream)
    assert.deepEqual([host[1023], host[1024], host[1535], host[1536]], [0, 9, 9, 0])
    driver.cuMemHostUnregister(host.subarray(1024, 2048))
    driver.cuMemFree(source)
    driver.cuStreamDestroy(stream)
  })
})
