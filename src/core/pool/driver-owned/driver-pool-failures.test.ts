// Every driver call in the life of driver pools fails in turn, once or from then on. Refused steps change nothing,
// and live buffers keep their contents. In the end the device has all of its memory back.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, DescriptorError, OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { DeviceBuffer } from '../buffer.js'
import { isRefused, refuseEach, TestDevice } from '../pool.fixture.js'
import type { DriverPool } from './driver-pool.js'
import type { DriverPoolOptions } from './driver-pool-options.js'
import type { ImportedPool } from './imported-pool.js'

const PATH = '/tmp/driver-pool-failures-test'
const SHARED = { handleTypes: 'posixFileDescriptor' } as const

class Workload {
  readonly device = new TestDevice({ capacityBytes: 256 * MiB })
  readonly streams = [this.device.createStream(), this.device.createStream()]
  readonly pools: DriverPool[] = []
  readonly held: { readonly buffer: DeviceBuffer; readonly stamp: number }[] = []
  imported: ImportedPool | null = null
  refusals = 0

  constructor(private readonly timeoutMs: number) {}

  async run(): Promise<void> {
    const { device, streams } = this
    const [a, b] = streams
    this.open(null)
    this.open({ location: 'host' })
    this.open(SHARED)
    for (const pool of this.pools) {
      this.attempt(() => {
        pool.releaseThresholdBytes = 16 * MiB
      })
      for (const stream of [a, b]) this.hold(() => pool.allocate(5 * MiB, stream))
      this.attempt(() => pool.setAccess(device, 'readWrite'))
      this.attempt(() => void pool.stats())
    }
    for (const { buffer } of [...this.held]) this.attempt(() => buffer.recordUse(buffer.stream === a ? b : a))
    for (let index = this.held.length - 1; index > 0; index -= 2) this.free(index)
    this.attempt(() => device.context.activate().cuCtxSynchronize())
    for (const pool of this.pools) {
      this.attempt(() => void pool.trimTo(0))
      this.attempt(() => pool.resetPeaks())
    }
    const shared = this.pools.at(-1)
    if (shared === undefined) return
    await this.share(shared)
    this.attempt(() => {
      const block = this.held.find(({ buffer }) => buffer.allocation.pool === shared)
      const imported = block && this.imported?.importBuffer(shared.exportPointer(block.buffer), a)
      if (imported) this.held.push({ buffer: imported, stamp: block.stamp })
    })
  }

  private open(options: DriverPoolOptions | null): void {
    const { device } = this
    this.attempt(() => {
      this.pools.push(options === null ? device.defaultDriverPool() : device.createDriverPool(options))
    })
  }

  private hold(allocate: () => DeviceBuffer): void {
    this.attempt(() => {
      const stamp = this.held.length + 1
      const buffer = allocate()
      this.held.push({ buffer, stamp: -1 })
      buffer.fill(stamp)
      this.held[this.held.length - 1] = { buffer, stamp }
    })
  }

  private free(index: number): void {
    const { buffer } = this.held[index]
    this.attempt(() => buffer.free())
    if (buffer.freed) this.held.splice(index, 1)
  }

  private async share(pool: DriverPool): Promise<void> {
    const options = { timeoutMs: this.timeoutMs }
    const [opened, shared] = await Promise.allSettled([
      this.device.importPool(PATH, options),
      pool.exportTo(PATH, options),
    ])
    if (opened.status === 'fulfilled') this.imported = opened.value
    for (const result of [opened, shared]) {
      if (result.status === 'rejected') this.attempt(() => raise(result.reason))
    }
  }

  attempt(step: () => unknown): void {
    if (isRefused(step, PoolError, OutOfMemoryError, DescriptorError)) this.refusals++
  }
}

function raise(error: unknown): never {
  throw error
}

function assertRecovers({ device, pools, held, imported }: Workload): void {
  for (const { buffer, stamp } of held) {
    assert.equal(buffer.freed, false)
    if (stamp !== -1) assert.equal(buffer.readSync(buffer.byteLength - 1)[0], stamp, 'contents are kept')
  }
  for (const { buffer } of held) if (buffer.allocation.pool === imported) buffer.free()
  imported?.close()
  for (const pool of pools) {
    pool.releaseThresholdBytes = 0
    for (const { buffer } of held) if (buffer.allocation.pool === pool && !buffer.freed) buffer.free()
    assert.equal(pool.stats().liveBuffers, 0)
    pool.allocate(1 * MiB)
    pool.close()
  }
  assert.equal(device.freeBytes(), device.totalBytes)
}

describe('driver failures: driver pools', () => {
  it('without failures, no step of the workload is refused', async () => {
    const workload = new Workload(10_000)
    await workload.run()
    assert.equal(workload.refusals, 0)
    assertRecovers(workload)
  })

  it('no refused call loses memory or contents', async () => {
    const start = () => new Workload(1)
    const calls = await refuseEach(start, workload => workload.run(), assertRecovers, { codes: [1, 2, 801, 999] })
    assert.ok(calls > 70, `${calls} calls`)
  })

  it('a close that fails can be repeated, and then all memory is back', async () => {
    const close = ({ imported, pools }: Workload) => {
      imported?.close()
      for (const pool of pools) pool.close()
    }
    const start = async () => {
      const workload = new Workload(10_000)
      await workload.run()
      workload.pools[0].releaseThresholdBytes = 0
      return workload
    }
    let refusals = 0
    const calls = await refuseEach(
      start,
      workload => {
        try {
          close(workload)
        } catch (error) {
          assert.ok(error instanceof CudaError, `${error}`)
          refusals++
        }
      },
      workload => {
        close(workload)
        close(workload)
        assert.equal(workload.device.freeBytes(), workload.device.totalBytes)
      },
    )
    assert.ok(calls > 10, `${calls} calls`)
    assert.equal(refusals, 2 * calls, 'each refusal is thrown')
  })
})
