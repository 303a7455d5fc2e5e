// Every driver call of a workload with host memory fails in turn, once or from then on. Live buffers stay live with
// their contents, and submitted copies arrive whole. Memory with a pending copy is not handed out, and in the end all
// memory is unpinned.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { isFilled, isRefused, TestDevice } from '../pool.fixture.js'
import type { HostBuffer } from './host-buffer.js'
import type { HostPool } from './host-pool.js'

const LIMIT = 3 * MiB
const TARGET_BYTES = 8 * MiB

class Workload {
  readonly device = new TestDevice()
  readonly pool: HostPool
  readonly held: { readonly host: HostBuffer; readonly stamp: number }[] = []
  /** the expected contents on the device, by their offset */
  readonly landed = new Map<number, { readonly bytes: number; readonly stamp: number }>()
  /** the arrays that are pinned now */
  readonly pinned = new Set<ArrayBufferView>()
  readonly target: DeviceBuffer
  refusals = 0
  private readonly streams: Stream[]
  private stamps = 0
  private end = 0

  constructor() {
    const { device } = this
    this.streams = [device.defaultStream, device.createStream()]
    this.target = device.createPool().allocate(TARGET_BYTES, this.streams[1])
    this.pool = device.createHostPool({ maxPoolBytes: LIMIT, segmentBytes: 512 * KiB, mapped: true })
    const { driver } = device
    const [register, unregister] = [driver.cuMemHostRegister, driver.cuMemHostUnregister]
    driver.cuMemHostRegister = (host, flags) => {
      register.call(driver, host, flags)
      this.pinned.add(host)
    }
    driver.cuMemHostUnregister = host => {
      unregister.call(driver, host)
      this.pinned.delete(host)
    }
  }

  run(): void {
    const [a, b] = this.streams
    for (let count = 0; count < 3; count++) this.allocate(100 * KiB)
    const release = this.device.hold(b)
    this.copy(0)
    this.copy(1)
    this.free(0)
    this.allocate(100 * KiB, a)
    this.attempt(() => void this.held[0]?.host.devicePtr)
    this.allocate(1 * MiB)
    this.copy(this.held.length - 1)
    this.free(this.held.length - 1, a)
    this.attempt(() => void this.pool.processDeferred())
    this.allocate(1 * MiB)
    this.attempt(() => this.shortLivedStream())
    release()
    this.attempt(() => b.synchronize())
    this.free(0)
    this.attempt(() => void this.pool.trimTo(1 * MiB))
    for (let count = 0; count < 12; count++) {
      this.allocate(250 * KiB)
      this.copy(this.held.length - 1)
      if (count % 2 === 0) this.free(this.held.length - 1) // in the end pending copies hold the only memory left
    }
    this.allocate(8 * MiB) // more than the pool's limit
    this.attempt(() => void this.pool.trimTo(0))
  }

  attempt(step: () => void): void {
    if (isRefused(step, OutOfMemoryError)) this.refusals++
  }

  private allocate(bytes: number, stream?: Stream): void {
    this.attempt(() => {
      const host = this.pool.allocate(bytes, stream)
      const stamp = ++this.stamps
      host.bytes.fill(stamp)
      this.held.push({ host, stamp })
    })
  }

  private copy(index: number): void {
    if (index < 0 || index >= this.held.length) return
    const { host, stamp } = this.held[index]
    this.attempt(() => {
      host.copyTo(this.target, this.end)
      this.landed.set(this.end, { bytes: host.byteLength, stamp })
    })
    this.end += host.byteLength
  }

  private free(index: number, stream?: Stream): void {
    if (index < 0 || index >= this.held.length) return
    this.held[index].host.free(stream)
    this.held.splice(index, 1)
  }

  private shortLivedStream(): void {
    const stream = this.device.createStream()
    try {
      this.pool.allocate(10 * KiB, stream).free()
    } finally {
      stream.close()
    }
  }
}

/** The number of driver calls of a workload without failures. */
function countCalls(steps: (workload: Workload) => void): number {
  const workload = new Workload()
  const before = workload.device.callCount
  steps(workload)
  return workload.device.callCount - before
}

describe('driver failures: host pool', () => {
  const calls = countCalls(workload => workload.run())

  it('without failures, the workload is refused only the allocation above the limit', () => {
    const workload = new Workload()
    workload.run()
    assert.ok(calls > 40, `${calls} driver calls`)
    assert.ok(workload.refusals >= 1 && workload.refusals <= 6, `${workload.refusals} refusals`)
    assert.ok(workload.landed.size > 10)
    assertRecovers(workload)
  })

  for (const [name, codeOf] of [
    ['out of memory', () => 2],
    ['another refusal', (nth: number) => (nth % 2 === 0 ? 1 : 999)],
  ] as const) {
    for (const onwards of [false, true]) {
      it(`${name} ${onwards ? 'from the n-th call on' : 'at the n-th call'} loses no memory or contents, for every n`, () => {
        for (let nth = 1; nth <= calls; nth++) {
          const workload = new Workload()
          workload.device.driver.failCall({ call: '*', nth, code: codeOf(nth), onwards })
          workload.run()
          workload.device.driver.clearFaults()
          try {
            assertRecovers(workload)
          } catch (error) {
            throw new Error(`after call ${nth} of ${calls} failed`, { cause: error })
          }
        }
      })
    }
  }

  it('a close that fails can be repeated, and then no memory is pinned', () => {
    const closing = countCalls(workload => {
      workload.run()
      workload.pool.close()
    })
    assert.ok(closing > calls + 2)
    for (let nth = calls + 1; nth <= closing; nth++) {
      for (const onwards of [false, true]) {
        const workload = new Workload()
        workload.device.driver.failCall({ call: '*', nth, code: 999, onwards })
        workload.run()
        assert.throws(() => workload.pool.close(), CudaError, `call ${nth}`)
        workload.device.driver.clearFaults()
        workload.pool.close()
        assert.equal(workload.pinned.size, 0)
      }
    }
  })
})

function assertRecovers(workload: Workload): void {
  const { device, pool, held, landed, target, pinned } = workload
  pool.check()
  assert.equal(pool.stats().liveBuffers, held.length, 'what was handed out is what is held')
  device.context.activate().cuCtxSynchronize()
  const arrived = new Uint8Array(TARGET_BYTES)
  device.driver.cuMemcpyDtoH(arrived, target.ptr)
  for (const [start, { bytes, stamp }] of landed) {
    assert.ok(isFilled(arrived.subarray(start, start + bytes), stamp), 'copies arrive as submitted')
  }
  for (const { host, stamp } of held) {
    assert.ok(isFilled(host.bytes, stamp), 'contents are kept')
    host.free()
  }
  pool.processDeferred()
  assert.equal(pool.stats().liveBytes, 0)
  pool.allocate(LIMIT).free()
  pool.trimTo(0)
  assert.deepEqual([pool.stats().reservedBytes, pinned.size], [0, 0])
  pool.allocate(1 * MiB)
  pool.close()
  assert.equal(pinned.size, 0)
}
