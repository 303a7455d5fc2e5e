// The contract of streams and events.

import assert from 'node:assert/strict'
import { beforeEach, describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CU_EVENT_DISABLE_TIMING, CU_STREAM_LEGACY_DEFAULT, CU_STREAM_NON_BLOCKING } from '../constants.js'
import type { Driver } from '../driver.js'
import type { DriverFixture } from './fixture.suite.js'

export function streamSuite(fixture: DriverFixture): void {
  const { allocate, createEvent, createStream, newHost, read, register } = fixture
  let driver: Driver
  let context: number
  beforeEach(() => {
    driver = fixture.driver
    context = fixture.context
  })

  describe('streams and events', () => {
    it('is idle after a synchronise', () => {
      const stream = createStream()
      const event = createEvent()
      const ptr = allocate(64 * MiB)
      driver.cuMemsetD8Async(ptr, 1, 64 * MiB, stream)
      driver.cuEventRecord(event, stream)
      driver.cuStreamSynchronize(stream)
      assert.equal(driver.cuStreamQuery(stream), true)
      assert.equal(driver.cuEventQuery(event), true)
    })

    it('completes in the end, when only asked', () => {
      const stream = createStream()
      const event = createEvent()
      driver.cuMemsetD8Async(allocate(MiB), 1, MiB, stream)
      driver.cuEventRecord(event, stream)
      while (!driver.cuEventQuery(event));
      while (!driver.cuStreamQuery(stream));
    })

    it('takes a never recorded event as complete', () => {
      const event = createEvent()
      assert.equal(driver.cuEventQuery(event), true)
      driver.cuEventSynchronize(event)
      driver.cuStreamWaitEvent(createStream(), event)
    })

    it('orders two streams by an event', () => {
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

    it('waits for the event as it was recorded at the time of the wait', () => {
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

    it('keeps a wait after its event is destroyed', () => {
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

    it('moves an event when it is recorded again', () => {
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

    it('orders blocking streams with the default stream, both ways', () => {
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

    it('completes the work of a destroyed stream', () => {
      const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
      const ptr = allocate(64 * MiB)
      driver.cuMemsetD8Async(ptr, 6, 64 * MiB, stream)
      driver.cuStreamDestroy(stream)
      assert.equal(read(ptr + 64 * MiB - 1, 1)[0], 6)
    })

    it('knows the context of a stream, and never uses an id again', () => {
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
