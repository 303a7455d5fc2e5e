// The contract of copies in batches. An unknown address is tested with the simulated driver alone: libcuda may take it
// for host memory.

import assert from 'node:assert/strict'
import { beforeEach, describe, it, type TestContext } from 'node:test'
import { KiB } from '../../base/bytes.js'
import { CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_LEGACY_DEFAULT } from '../constants.js'
import { type BatchedCopy, type Driver, MOST_BATCHED_COPIES } from '../driver.js'
import { type DriverFixture, sequence } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

export function batchSuite(fixture: DriverFixture): void {
  const { allocate, createStream, newHost, read, register } = fixture
  let driver: Driver
  beforeEach(() => {
    driver = fixture.driver
  })

  function tooOld(test: TestContext): boolean {
    if (driver.cuDriverGetVersion() >= 12_080) return false
    test.skip('batches of copies came with driver 12.8')
    return true
  }

  /** A copy for each of `sizes`, with gaps of 1 KiB between them on the device, and none on the host. */
  function spread(ptr: number, host: Uint8Array, sizes: readonly number[]): BatchedCopy[] {
    let [from, to] = [0, ptr]
    return sizes.map(bytes => {
      const copy = { host: host.subarray(from, from + bytes), ptr: to }
      from += bytes
      to += bytes + KiB
      return copy
    })
  }

  describe('copies in batches', () => {
    it('a batch copies each part to the device, and another one back, in the order of the stream', test => {
      if (tooOld(test)) return
      const sizes = [64 * KiB, 1, 4096, 100_003, 256]
      const bytes = sizes.reduce((sum, size) => sum + size, 0)
      const [stream, ptr] = [createStream(), allocate(bytes + sizes.length * KiB)]
      const [up, down] = [register(newHost(bytes)), register(newHost(bytes))]
      up.set(sequence(bytes))
      driver.cuMemsetD8Async(ptr, 0xee, bytes + sizes.length * KiB, stream)
      driver.cuMemcpyBatchAsync(spread(ptr, up, sizes), 'toDevice', stream)
      driver.cuMemcpyBatchAsync(spread(ptr, down, sizes), 'toHost', stream)
      driver.cuStreamSynchronize(stream)
      assert.deepEqual(down, up)
      assert.deepEqual(read(ptr + sizes[0], KiB), new Uint8Array(KiB).fill(0xee), 'the gap is untouched')
    })

    it('a batch can have as many copies as the contract says', test => {
      if (tooOld(test)) return
      const [stream, ptr] = [createStream(), allocate(MOST_BATCHED_COPIES * (KiB + 256))]
      const [up, down] = [0, 1].map(() => register(newHost(MOST_BATCHED_COPIES * 256)))
      up.set(sequence(up.length))
      const sizes = new Array<number>(MOST_BATCHED_COPIES).fill(256)
      driver.cuMemcpyBatchAsync(spread(ptr, up, sizes), 'toDevice', stream)
      driver.cuMemcpyBatchAsync(spread(ptr, down, sizes), 'toHost', stream)
      driver.cuStreamSynchronize(stream)
      assert.deepEqual(down, up)
      const tooMany = [...spread(ptr, up, sizes), ...spread(ptr, up, [256])]
      assert.throws(() => driver.cuMemcpyBatchAsync(tooMany, 'toDevice', stream))
      assert.throws(() => driver.cuMemcpyBatchAsync([], 'toDevice', stream))
    })

    it('the legacy default stream is refused', test => {
      if (tooOld(test)) return
      const [stream, ptr] = [createStream(), allocate(8 * KiB)]
      const copies = spread(ptr, register(newHost(8 * KiB)), [KiB, KiB])
      const batch = (handle: number) => () => driver.cuMemcpyBatchAsync(copies, 'toDevice', handle)
      refuses(batch(CU_STREAM_LEGACY_DEFAULT), 'cuMemcpyBatchAsync')
      batch(stream)()
    })

    it('a captured stream takes no batch, and other streams do meanwhile', test => {
      if (tooOld(test)) return
      const [captured, other, ptr] = [createStream(), createStream(), allocate(8 * KiB)]
      const host = register(newHost(8 * KiB))
      host.set(sequence(8 * KiB))
      const batch = (stream: number) =>
        driver.cuMemcpyBatchAsync(spread(ptr, host, [2 * KiB, 2 * KiB]), 'toDevice', stream)
      driver.cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL)
      batch(other)
      refuses(() => batch(captured), 'cuMemcpyBatchAsync')
      driver.cuGraphDestroy(driver.cuStreamEndCapture(captured)) // the refusal leaves the capture as it is
      assert.deepEqual(read(ptr, 2 * KiB), sequence(2 * KiB))
    })
  })
}
