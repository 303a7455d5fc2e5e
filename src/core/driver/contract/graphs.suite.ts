// The contract of captures and graphs.

import assert from 'node:assert/strict'
import { beforeEach, describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import {
  CU_STREAM_CAPTURE_MODE_GLOBAL,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_LEGACY_DEFAULT,
  CU_STREAM_NON_BLOCKING,
  RESULT,
} from '../constants.js'
import type { Driver } from '../driver.js'
import type { DriverFixture } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

export function graphSuite(fixture: DriverFixture): void {
  const { allocate, createEvent, createStream, later, read } = fixture
  let driver: Driver
  beforeEach(() => {
    driver = fixture.driver
  })

  describe('captures and graphs', () => {
    /** A graph that can be launched, and is destroyed after the test. */
    function instantiate(graph: number): number {
      const executable = driver.cuGraphInstantiate(graph)
      driver.cuGraphDestroy(graph)
      later(() => driver.cuGraphExecDestroy(executable))
      return executable
    }

    function join(earlier: number, later: number): void {
      const event = createEvent()
      driver.cuEventRecord(event, earlier)
      driver.cuStreamWaitEvent(later, event)
    }

    it('a capture records work, and each launch of its graph runs the work', () => {
      const [stream, ptr] = [createStream(), allocate(KiB)]
      driver.cuMemsetD8Async(ptr, 1, KiB, stream)
      driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
      assert.equal(driver.cuStreamIsCapturing(stream), true)
      driver.cuMemsetD16Async(ptr, 0x0202, KiB / 2, stream)
      const executable = instantiate(driver.cuStreamEndCapture(stream))
      assert.equal(driver.cuStreamIsCapturing(stream), false)
      assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(1))
      for (let launch = 0; launch < 2; launch++) {
        driver.cuGraphLaunch(executable, stream)
        assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(2))
        driver.cuMemsetD8Async(ptr, 3, KiB, stream)
        assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(3))
      }
    })

    it('a graph keeps the order of streams that events have joined', () => {
      const [a, b] = [createStream(), createStream()]
      const [x, y] = [allocate(MiB), allocate(MiB)]
      driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)
      driver.cuMemsetD8Async(x, 1, MiB, a)
      join(a, b)
      assert.equal(driver.cuStreamIsCapturing(b), true)
      driver.cuMemcpyDtoDAsync(y, x, MiB, b)
      join(b, a)
      driver.cuMemsetD8Async(x, 2, MiB, a)
      const executable = instantiate(driver.cuStreamEndCapture(a))
      for (let launch = 0; launch < 3; launch++) driver.cuGraphLaunch(executable, b)
      assert.deepEqual(read(y, MiB), new Uint8Array(MiB).fill(1))
      assert.deepEqual(read(x, MiB), new Uint8Array(MiB).fill(2))
    })

    it('a capture with an unjoined stream ends with an error, and its streams work again', () => {
      const [a, b, ptr] = [createStream(), createStream(), allocate(KiB)]
      driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)
      driver.cuMemsetD8Async(ptr, 1, KiB, a)
      join(a, b)
      driver.cuMemsetD8Async(ptr, 2, KiB, b)
      const unjoined = RESULT.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
      refuses(() => driver.cuStreamEndCapture(a), 'cuStreamEndCapture', unjoined)
      for (const stream of [a, b]) assert.equal(driver.cuStreamIsCapturing(stream), false)
      driver.cuMemsetD8Async(ptr, 3, KiB, b)
      assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(3))
    })

    it('waits for other work, and unsafe calls of a thread in global mode, invalidate a capture', () => {
      const outside = createEvent()
      const stream = createStream()
      driver.cuEventRecord(outside, stream)
      const { CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: unsupported, CUDA_ERROR_STREAM_CAPTURE_ISOLATION: isolation } =
        RESULT
      for (const [call, code, act] of [
        ['cuStreamSynchronize', unsupported, () => driver.cuStreamSynchronize(stream)],
        ['cuStreamWaitEvent', isolation, () => driver.cuStreamWaitEvent(stream, outside)],
        ['cuMemAlloc', unsupported, () => driver.cuMemAlloc(KiB)],
      ] as const) {
        driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
        refuses(act, call, code)
        const invalidated = RESULT.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        refuses(() => driver.cuStreamEndCapture(stream), 'cuStreamEndCapture', invalidated)
        assert.equal(driver.cuStreamIsCapturing(stream), false)
      }
      refuses(() => driver.cuStreamEndCapture(stream), 'cuStreamEndCapture')
      refuses(() => driver.cuStreamBeginCapture(CU_STREAM_LEGACY_DEFAULT, 0), 'cuStreamBeginCapture')
    })

    it('unsafe calls of a thread in relaxed mode are allowed during a capture', () => {
      const [stream, other, event] = [createStream(), createStream(), createEvent()]
      const ptr = allocate(KiB)
      const before = driver.cuThreadExchangeStreamCaptureMode(CU_STREAM_CAPTURE_MODE_RELAXED)
      later(() => driver.cuThreadExchangeStreamCaptureMode(before))
      assert.equal(before, CU_STREAM_CAPTURE_MODE_GLOBAL)
      driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
      driver.cuMemsetD8Async(ptr, 9, KiB, stream)
      driver.cuMemFree(driver.cuMemAlloc(KiB))
      driver.cuEventRecord(event, other)
      driver.cuEventSynchronize(event)
      assert.equal(driver.cuEventQuery(event), true)
      const executable = instantiate(driver.cuStreamEndCapture(stream))
      assert.equal(driver.cuThreadExchangeStreamCaptureMode(before), CU_STREAM_CAPTURE_MODE_RELAXED)
      driver.cuGraphLaunch(executable, other)
      assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(9))
    })

    it('the flags of a stream say if it waits for the legacy stream', () => {
      assert.equal(driver.cuStreamGetFlags(createStream()), CU_STREAM_NON_BLOCKING)
      assert.equal(driver.cuStreamGetFlags(createStream(0)), 0)
    })
  })
}
