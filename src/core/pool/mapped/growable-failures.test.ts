// Every driver call in the life of a growable buffer fails in turn, once or from then on. A refused call leaves
// length, address and contents as they were, and after a single failure the memory, too. Once the driver works again,
// all memory can be used and given back.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import { isRefused, refuseEach, TestDevice } from '../pool.fixture.js'
import type { GrowableBuffer } from './growable-buffer.js'

const CAPACITY = 64 * MiB

/** Whether a step was refused by the driver, or for what was refused before. */
const refusable = (step: () => void) => isRefused(step, OutOfMemoryError, PoolError, RangeError)

function open() {
  const device = new TestDevice({ capacityBytes: CAPACITY })
  const streams = [device.createStream(), device.createStream()]
  const buffer = device.createGrowableBuffer({ bytes: 3 * MiB, stream: streams[0] })
  buffer.fill(1)
  return { device, buffer, workload: new Workload(device, buffer, streams) }
}

/** Grows, shrinks with work pending, grows again, and waits; steps that the driver refuses change nothing. */
class Workload {
  refusals = 0
  /** the expected length of the buffer */
  bytes = 3 * MiB

  constructor(
    private readonly device: TestDevice,
    private readonly buffer: GrowableBuffer,
    private readonly streams: readonly Stream[],
  ) {}

  run(): void {
    const [a, b] = this.streams
    const { buffer } = this
    this.resize('grow', 4 * MiB)
    this.resize('grow', 5 * MiB)
    this.resize('grow', 40 * MiB)
    this.resize('grow', 100 * MiB) // beyond the reservation
    buffer.recordUse(b)
    this.hold(b)
    this.resize('shrink', 20 * MiB)
    this.hold(a)
    this.resize('grow', 30 * MiB)
    this.resize('shrink', 6 * MiB)
    this.attempt(() => buffer.allocation.settle())
    this.attempt(() => buffer.settleSync())
    this.resize('grow', 60 * MiB)
    const view = buffer.array(Uint8Array)
    this.resize('shrink', 5 * MiB) // below the view
    view.free()
    this.resize('shrink', 4 * MiB)
    this.attempt(() => buffer.settleSync())
  }

  private resize(how: 'grow' | 'shrink', bytes: number): void {
    const before = this.buffer.byteLength
    assert.equal(before, this.bytes)
    this.attempt(() => {
      this.buffer[how](bytes)
      this.bytes = bytes
    })
    if (this.bytes === before) assert.equal(this.buffer.byteLength, before)
    this.buffer.check()
  }

  private hold(stream: Stream): void {
    this.device.hold(stream)
    this.attempt(() => {
      this.device.context.activate().cuMemsetD8Async(this.buffer.ptr + 1 * MiB, 9, this.bytes - 1 * MiB, stream.handle)
    })
  }

  private attempt(step: () => void): void {
    if (refusable(step)) this.refusals++
  }
}

function assertRecovers({ device, buffer, workload }: ReturnType<typeof open>): void {
  buffer.check()
  assert.equal(buffer.byteLength, workload.bytes)
  assert.equal(buffer.readSync(0, 1 * MiB)[1 * MiB - 1], 1, 'contents are kept')
  buffer.grow(buffer.byteLength + 3 * MiB)
  buffer.fill(1, workload.bytes)
  buffer.settleSync()
  assert.equal(device.freeBytes(), CAPACITY - buffer.mappedBytes, 'no memory is anywhere else')
  buffer.grow(CAPACITY)
  assert.equal(device.freeBytes(), 0)
  buffer.fill(2)
  assert.equal(buffer.readSync(CAPACITY - 1)[0], 2)
  const { ptr } = buffer
  buffer.free()
  buffer.settleSync()
  assertAllBack(device, ptr)
}

/** Asserts that the device has memory and addresses back; `ptr` is the buffer's address. */
function assertAllBack(device: TestDevice, ptr: number): void {
  assert.equal(device.freeBytes(), CAPACITY)
  assert.throws(() => device.driver.cuMemAddressFree(ptr, CAPACITY), /not a whole reserved range/)
}

/** How many driver calls `work` makes without failures. */
function countCalls(work: (opened: ReturnType<typeof open>) => void): number {
  const opened = open()
  const before = opened.device.callCount
  work(opened)
  return opened.device.callCount - before
}

describe('driver failures: growable buffer', () => {
  it('without failures, the workload is refused only the steps beyond its limits', () => {
    const opened = open()
    opened.workload.run()
    assert.equal(opened.workload.refusals, 2)
    assertRecovers(opened)
  })

  it('no refused call loses memory or contents', async () => {
    const calls = await refuseEach(open, ({ workload }) => workload.run(), assertRecovers, { codes: [1, 2, 999] })
    assert.ok(calls > 80, `${calls} driver calls`)
  })

  it('a growth that fails once leaves everything exactly as it was, whichever call fails', () => {
    const steps = countCalls(({ buffer }) => buffer.grow(50 * MiB))
    assert.ok(steps > 20, `${steps} calls`)
    for (let nth = 1; nth <= steps; nth++) {
      for (const code of [2, 999]) {
        const { device, buffer } = open()
        const before = [buffer.ptr, buffer.byteLength, buffer.mappedBytes, device.freeBytes()]
        device.driver.failCall({ call: '*', nth, code })
        assert.throws(() => buffer.grow(50 * MiB), code === 2 ? OutOfMemoryError : CudaError)
        assert.deepEqual([buffer.ptr, buffer.byteLength, buffer.mappedBytes, device.freeBytes()], before)
        buffer.check()
        buffer.grow(50 * MiB)
        buffer.fill(1, 3 * MiB)
        assert.equal(buffer.readSync(50 * MiB - 1)[0], 1)
      }
    }
  })

  it('the next growth undoes what a failed growth could not', () => {
    const { device, buffer } = open()
    buffer.grow(32 * MiB)
    device.driver.failCall({ call: 'cuMemSetAccess', code: 999 })
    device.driver.failCall({ call: 'cuMemUnmap', code: 999, onwards: true })
    assert.throws(() => buffer.grow(62 * MiB), { name: 'CudaError', call: 'cuMemSetAccess' })
    assert.deepEqual([buffer.byteLength, buffer.mappedBytes], [32 * MiB, 62 * MiB])
    assert.throws(() => buffer.grow(34 * MiB), { name: 'CudaError', call: 'cuMemUnmap' })
    buffer.check()
    device.driver.clearFaults()
    buffer.grow(34 * MiB)
    assert.deepEqual([buffer.mappedBytes, device.freeBytes()], [34 * MiB, CAPACITY - 34 * MiB])
    buffer.fill(1)
    assert.equal(buffer.readSync(34 * MiB - 1)[0], 1)
  })

  it('a buffer that cannot be made leaves nothing behind', async () => {
    const start = () => ({
      device: new TestDevice({ capacityBytes: CAPACITY }),
      buffer: null as GrowableBuffer | null,
    })
    const make = (subject: ReturnType<typeof start>) => {
      subject.buffer = subject.device.createGrowableBuffer({ bytes: 20 * MiB })
      return subject.buffer
    }
    const { ptr } = make(start())
    await refuseEach(
      start,
      subject => refusable(() => make(subject)),
      ({ device, buffer }) => {
        buffer?.allocation.close()
        assertAllBack(device, ptr)
      },
      { onwards: [false] },
    )
  })

  it('closing the device gives back what a buffer that cannot be made could not', () => {
    for (const call of ['cuMemRelease', 'cuMemAddressFree'] as const) {
      const device = new TestDevice({ capacityBytes: CAPACITY })
      const { allocation, ptr } = device.createGrowableBuffer({ bytes: 20 * MiB }) // virtual memory has been probed
      allocation.close()
      device.driver.failCall({ call: 'cuMemMap', code: 999 })
      device.driver.failCall({ call, code: 999, onwards: true })
      assert.throws(() => device.createGrowableBuffer({ bytes: 20 * MiB }), { name: 'CudaError', call: 'cuMemMap' })
      device.driver.clearFaults()
      device.context.destroyRest()
      assertAllBack(device, ptr)
    }
  })

  it('memory that the driver does not take back counts as mapped', () => {
    const { device, buffer } = open()
    buffer.grow(32 * MiB)
    device.driver.failCall({ call: 'cuMemRelease', code: 999, onwards: true })
    buffer.shrink(0)
    assert.ok(buffer.mappedBytes > 0)
    assert.equal(device.freeBytes(), CAPACITY - buffer.mappedBytes)
    device.driver.clearFaults()
    buffer.settleSync()
    assert.deepEqual([buffer.mappedBytes, device.freeBytes()], [0, CAPACITY])
  })

  it('a free succeeds whatever the driver answers, and a wait or close goes on where it stopped', async () => {
    const start = () => {
      const opened = open()
      opened.buffer.grow(30 * MiB)
      return { ...opened, ptr: opened.buffer.ptr }
    }
    for (const finish of [
      (buffer: GrowableBuffer) => buffer.settleSync(),
      (buffer: GrowableBuffer) => buffer.allocation.close(),
    ]) {
      await refuseEach(
        start,
        ({ buffer }) => {
          buffer.free()
          assert.equal(buffer.freed, true)
          refusable(() => finish(buffer))
        },
        ({ device, buffer, ptr }) => {
          finish(buffer)
          assertAllBack(device, ptr)
        },
      )
    }
  })
})
