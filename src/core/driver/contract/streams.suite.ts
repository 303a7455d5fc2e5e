// The contract of streams and events.

import assert from 'node:assert/strict'
import { beforeEach, describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import {
  CU_EVENT_DEFAULT,
  CU_EVENT_DISABLE_TIMING,
  CU_STREAM_LEGACY_DEFAULT,
  CU_STREAM_NON_BLOCKING,
  RESULT,
} from '../constants.js'
import type { Driver } from '../driver.js'
import type { DriverFixture } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

export function streamSuite(fixture: DriverFixture): void {
  const { allocate, createEvent, createStream, later, newHost, read, register } = fixture
  let driver: Driver
  let context: number
  beforeEach(() => {
    driver = fixture.driver
    context = fixture.context
  })

  function createTimedEvent(): number {
    const event = driver.cuEventCreate(CU_EVENT_DEFAULT)
    later(() => driver.cuEventDestroy(event))
    return event
  }

  describe('streams and events', () => {
    it('a stream is idle after a synchronisation', () => {
      const stream = createStream()
      const event = createEvent()
      const ptr = allocate(64 * MiB)
      driver.cuMemsetD8Async(ptr, 1, 64 * MiB, stream)
      driver.cuEventRecord(event, stream)
      driver.cuStreamSynchronize(stream)
      assert.equal(driver.cuStreamQuery(stream), true)
      assert.equal(driver.cuEventQuery(event), true)
    })

    it('work completes while the host only queries', () => {
      const stream = createStream()
      const event = createEvent()
      driver.cuMemsetD8Async(allocate(MiB), 1, MiB, stream)
      driver.cuEventRecord(event, stream)
      while (!driver.cuEventQuery(event));
      while (!driver.cuStreamQuery(stream));
    })

    it('an event without a record is complete', () => {
      const event = createEvent()
      assert.equal(driver.cuEventQuery(event), true)
      driver.cuEventSynchronize(event)
      driver.cuStreamWaitEvent(createStream(), event)
    })

    it('an event orders two streams', () => {
      const [a, b] = [createStream(), createStream()]
      const event = createEvent()
      const bytes = 64 * MiB
      const source = allocate(bytes)
      const target = allocate(bytes)
      for (const value of [1, 2, 3, 4]) {
        driver.cuMemsetD8Async(source, value, bytes, a)
        driver.cuEventRecord(event, a)
        driver.cuStreamWaitEvent(b, event)
        driver.cuMemcpyDtoDAsync(target, source, bytes, b)
        driver.cuStreamSynchronize(b)
        assert.equal(read(target + bytes - 1, 1)[0], value)
      }
    })

    it('a wait is for the record at the time of the wait', () => {
      const [a, b, c] = [createStream(), createStream(), createStream()]
      const event = createEvent()
      const source = allocate(MiB)
      const target = allocate(MiB)
      driver.cuMemsetD8Async(source, 7, MiB, a)
      driver.cuEventRecord(event, a)
      driver.cuStreamWaitEvent(b, event)
      driver.cuEventRecord(event, c)
      driver.cuMemcpyDtoDAsync(target, source, MiB, b)
      driver.cuStreamSynchronize(b)
      assert.equal(read(target, 1)[0], 7)
    })

    it('a wait stays after its event is destroyed', () => {
      const [a, b] = [createStream(), createStream()]
      const source = allocate(16 * MiB)
      const target = allocate(16 * MiB)
      const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
      driver.cuMemsetD8Async(source, 5, 16 * MiB, a)
      driver.cuEventRecord(event, a)
      driver.cuStreamWaitEvent(b, event)
      driver.cuEventDestroy(event)
      driver.cuMemcpyDtoDAsync(target, source, 16 * MiB, b)
      driver.cuStreamSynchronize(b)
      assert.equal(read(target + 16 * MiB - 1, 1)[0], 5)
    })

    it('a second record moves an event', () => {
      const stream = createStream()
      const event = createEvent()
      const ptr = allocate(16 * MiB)
      const last = register(newHost(MiB)).subarray(0, 1)
      driver.cuEventRecord(event, stream)
      driver.cuMemsetD8Async(ptr, 8, 16 * MiB, stream)
      driver.cuMemcpyDtoHAsync(last, ptr + 16 * MiB - 1, stream)
      driver.cuEventRecord(event, stream)
      driver.cuEventSynchronize(event)
      assert.equal(last[0], 8)
    })

    it('blocking streams and the legacy stream wait for each other', () => {
      const stream = createStream(0)
      const bytes = 32 * MiB
      const source = allocate(bytes)
      const target = allocate(bytes)
      driver.cuMemsetD8Async(source, 1, bytes, stream)
      driver.cuMemcpyDtoDAsync(target, source, bytes, CU_STREAM_LEGACY_DEFAULT)
      driver.cuMemsetD8Async(source, 2, bytes, stream)
      driver.cuStreamSynchronize(CU_STREAM_LEGACY_DEFAULT)
      driver.cuStreamSynchronize(stream)
      assert.equal(read(target + bytes - 1, 1)[0], 1)
      assert.equal(read(source + bytes - 1, 1)[0], 2)
    })

    it('work of a destroyed stream completes', () => {
      const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
      const ptr = allocate(64 * MiB)
      driver.cuMemsetD8Async(ptr, 6, 64 * MiB, stream)
      driver.cuStreamDestroy(stream)
      assert.equal(read(ptr + 64 * MiB - 1, 1)[0], 6)
    })

    it('a stream has the priority that it was made with, within the range of the device', () => {
      const { least, greatest } = driver.cuCtxGetStreamPriorityRange()
      assert.ok(greatest <= least)
      assert.equal(driver.cuStreamGetPriority(createStream()), 0)
      for (const [asked, given] of [
        [greatest, greatest],
        [least, least],
        [greatest - 1, greatest],
        [least + 1, least],
      ]) {
        const stream = driver.cuStreamCreateWithPriority(CU_STREAM_NON_BLOCKING, asked)
        assert.equal(driver.cuStreamGetPriority(stream), given)
        assert.equal(driver.cuStreamGetFlags(stream), CU_STREAM_NON_BLOCKING)
        driver.cuStreamDestroy(stream)
      }
    })

    it('two events with timing tell the time between their records, once both are complete', () => {
      const [start, end] = [createTimedEvent(), createTimedEvent()]
      const stream = createStream()
      const ptr = allocate(64 * MiB)
      driver.cuEventRecord(start, stream)
      driver.cuMemsetD8Async(ptr, 1, 64 * MiB, stream)
      driver.cuEventRecord(end, stream)
      driver.cuStreamSynchronize(stream)
      const elapsed = driver.cuEventElapsedTime(start, end)
      assert.ok(elapsed >= 0 && elapsed < 10_000, `${elapsed} ms`)
      assert.equal(driver.cuEventElapsedTime(end, start), -elapsed)
      assert.equal(driver.cuEventElapsedTime(start, start), 0)
    })

    it('an event without timing or without a record has no time', () => {
      const stream = createStream()
      const [timed, untimed, unrecorded] = [createTimedEvent(), createEvent(), createTimedEvent()]
      driver.cuEventRecord(timed, stream)
      driver.cuEventRecord(untimed, stream)
      driver.cuStreamSynchronize(stream)
      for (const other of [untimed, unrecorded]) {
        const between = () => driver.cuEventElapsedTime(timed, other)
        refuses(between, 'cuEventElapsedTime', RESULT.CUDA_ERROR_INVALID_HANDLE)
      }
    })

    it('a stream has a context, and an id that is never used again', () => {
      const ids = new Set<number>()
      for (let i = 0; i < 10; i++) {
        const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
        assert.equal(driver.cuStreamGetCtx(stream), context)
        ids.add(driver.cuStreamGetId(stream))
        assert.equal(driver.cuStreamGetId(stream), driver.cuStreamGetId(stream))
        driver.cuStreamDestroy(stream)
      }
      assert.equal(ids.size, 10)
    })
  })
}
