// What the simulated driver refuses of a batch of copies, which libcuda may take for host memory or for a mistake.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KiB } from '../../../base/bytes.js'
import { RESULT } from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { openSimulated } from '../opened.fixture.js'

const { CUDA_ERROR_INVALID_VALUE } = RESULT

test('a batch with a freed address in the middle copies nothing', () => {
  const driver = openSimulated({ progress: 'eager' })
  const stream = driver.cuStreamCreate(1)
  const ptrs = [0, 1, 2].map(() => driver.cuMemAlloc(KiB))
  for (const ptr of ptrs) driver.cuMemsetD8Async(ptr, 5, KiB, stream)
  driver.cuMemFree(ptrs[1])
  const hosts = ptrs.map(() => new Uint8Array(KiB).fill(7))
  for (const host of hosts) driver.cuMemHostRegister(host, 0)
  const copies = ptrs.map((ptr, index) => ({ host: hosts[index], ptr }))
  const batch = () => driver.cuMemcpyBatchAsync(copies, 'toDevice', stream)
  refuses(batch, 'cuMemcpyBatchAsync', CUDA_ERROR_INVALID_VALUE)
  const back = new Uint8Array(KiB)
  for (const ptr of [ptrs[0], ptrs[2]]) {
    driver.cuMemcpyDtoH(back, ptr)
    assert.deepEqual(back, new Uint8Array(KiB).fill(5))
  }
})

test('a batch with pageable memory is refused, since the call does not wait for it', () => {
  const driver = openSimulated()
  const stream = driver.cuStreamCreate(1)
  const copies = [{ host: new Uint8Array(KiB), ptr: driver.cuMemAlloc(KiB) }]
  for (const direction of ['toHost', 'toDevice'] as const) {
    const batch = () => driver.cuMemcpyBatchAsync(copies, direction, stream)
    refuses(batch, 'cuMemcpyBatchAsync', CUDA_ERROR_INVALID_VALUE)
  }
})
