// Random programs of a pool that sleeps and wakes on a small device, compared with a shadow of the expected bytes.
// Fills run on several streams, and held operations keep them pending while the pool falls asleep. Another pool fills
// the device at times, and some driver calls are refused. The simulated device faults when memory is unmapped under
// work. In the end all memory is given back.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen a program; test names contain the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../../base/errors.js'
import { Random } from '../../../base/random.js'
import { seedsFrom } from '../../../base/seeds.fixture.js'
import { Event } from '../../../order/event.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { isFilled, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 300
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)
const CAPACITY = 32 * MiB
const LIMIT = 24 * MiB

interface Held {
  readonly buffer: DeviceBuffer
  readonly ptr: number
  /** the byte it is filled with; -1 for unknown contents */
  value: number
}

class Program {
  readonly device = new TestDevice({ capacityBytes: CAPACITY, granularityBytes: 256 * KiB })
  private readonly pool: CachingPool
  private readonly other: CachingPool
  private readonly host = this.device.createHostPool({ segmentBytes: 1 * MiB })
  private readonly streams: Stream[]
  private readonly held: Held[] = []
  private readonly taken: DeviceBuffer[] = []
  private values = 0
  private kept = false
  readonly counts = { sleeps: 0, refusedSleeps: 0, wakes: 0, refusedWakes: 0, freesAsleep: 0 }

  constructor(private readonly random: Random) {
    this.pool = this.device.createPool({ backing: 'virtual', maxPoolBytes: LIMIT })
    this.other = this.device.createPool({ backing: 'virtual', maxPoolBytes: LIMIT })
    this.streams = [this.device.defaultStream, this.device.createStream(), this.device.createStream()]
  }

  async run(): Promise<void> {
    for (let step = 0; step < STEPS; step++) {
      const kind = this.random.below(100)
      if (this.random.below(12) === 0) {
        const code = this.random.below(2) === 0 ? 2 : 999
        this.device.driver.failCall({ call: '*', nth: 1 + this.random.below(30), code })
      }
      if (kind < 35) this.allocate()
      else if (kind < 50) this.free()
      else if (kind < 65) this.use()
      else if (kind < 70) this.attempt(() => this.pool.trimTo(this.random.below(LIMIT)))
      else if (kind < 75) this.crowd()
      else if (this.pool.asleep) await this.wake()
      else if (kind < 90) await this.sleep()
      this.device.driver.clearFaults()
      this.pool.check()
      if (step % 10 === 0 && !this.pool.asleep) this.compare()
    }
    await this.end()
  }

  private allocate(): void {
    const most = this.random.below(3) === 0 ? 6 * MiB : 600 * KiB
    const bytes = 1 + this.random.below(most)
    const stream = this.anyStream()
    if (this.pool.asleep) {
      assert.throws(() => this.pool.allocate(bytes, stream), /the pool is asleep/)
      return
    }
    this.attempt(() => {
      const buffer = this.pool.allocate(bytes, stream)
      const one = { buffer, ptr: buffer.ptr, value: -1 }
      this.held.push(one)
      this.fill(one)
    })
  }

  private fill(one: Held): void {
    const value = ++this.values % 256
    one.value = -1
    one.buffer.fill(value)
    one.value = value
  }

  private free(): void {
    if (this.held.length === 0) return
    const index = this.random.below(this.held.length)
    this.attempt(() => this.held[index].buffer.free())
    if (this.held[index].buffer.freed) this.held.splice(index, 1)
    if (this.pool.asleep) this.counts.freesAsleep++
  }

  /** Fills a buffer again, or lets another stream use it. */
  private use(): void {
    if (this.held.length === 0) return
    const one = this.held[this.random.below(this.held.length)]
    const stream = this.anyStream()
    if (this.pool.asleep) {
      assert.throws(() => one.buffer.fill(1), /the pool is asleep/)
      assert.throws(() => one.buffer.recordUse(stream), /the pool is asleep/)
      return
    }
    this.attempt(() => {
      if (this.random.below(2) === 0 && !this.kept) this.fill(one)
      else one.buffer.recordUse(stream)
    })
  }

  /** Another pool takes memory of the device, or gives it back. */
  private crowd(): void {
    this.attempt(() => {
      if (this.taken.length > 0) {
        this.taken.pop()!.free()
        this.device.context.activate().cuCtxSynchronize()
        this.other.trimTo(0)
      } else this.taken.push(this.other.allocate(this.random.below(20) * MiB + 1))
    })
  }

  private async sleep(): Promise<void> {
    const { driver } = this.device
    const held = this.streams.map(({ handle }) => driver.holdOperation(handle))
    for (const one of this.held) if (this.random.below(3) === 0 && !this.kept) this.attempt(() => this.fill(one))
    const keep = this.random.below(8) === 0 ? 'nothing' : 'host'
    const options =
      keep === 'nothing'
        ? { keep: 'nothing' as const }
        : { unchanged: this.kept, ...(this.random.below(2) === 0 ? { into: this.host } : {}) }
    const sleeping = this.attemptLater(this.pool.sleep(options))
    for (let turn = this.random.below(4); turn > 0; turn--) await new Promise(setImmediate)
    if (this.random.below(3) === 0) this.free()
    this.streams.forEach(({ handle }, index) => {
      driver.releaseThrough(handle, held[index])
    })
    await sleeping
    this.counts[this.pool.asleep ? 'sleeps' : 'refusedSleeps']++
    if (this.pool.asleep && keep === 'nothing') for (const one of this.held) one.value = -1
    if (!this.pool.asleep) this.kept = false
  }

  private async wake(): Promise<void> {
    const keepCopy = this.random.below(3) === 0
    const wait = this.random.below(3) === 0 ? 'streams' : 'host'
    const waking = this.attemptLater(this.pool.wake({ keepCopy, wait }))
    if (this.random.below(4) === 0) this.free()
    await waking
    this.kept = keepCopy && !this.pool.asleep
    this.counts[this.pool.asleep ? 'refusedWakes' : 'wakes']++
  }

  private compare(): void {
    for (const { buffer, ptr, value } of this.held) {
      assert.equal(buffer.ptr, ptr, 'addresses stay')
      if (value === -1) continue
      order(buffer.stream, this.device.defaultStream)
      const bytes = new Uint8Array(buffer.byteLength)
      const driver = this.device.context.activate()
      driver.cuCtxSynchronize()
      driver.cuMemcpyDtoH(bytes, ptr)
      assert.ok(isFilled(bytes, value), 'contents stay')
    }
  }

  private async end(): Promise<void> {
    for (const buffer of this.taken) buffer.free()
    this.other.close()
    if (this.pool.asleep) await this.pool.wake()
    this.compare()
    for (const { buffer } of this.held) buffer.free()
    assert.equal(this.pool.stats().liveBytes, 0)
    await this.pool.sleep()
    await this.pool.wake()
    this.device.context.activate().cuCtxSynchronize()
    this.pool.allocate(LIMIT).free()
    this.pool.check()
    this.pool.close()
    this.host.processDeferred()
    assert.equal(this.host.stats().liveBytes, 0, 'no copy is left')
    assert.equal(this.device.freeBytes(), CAPACITY)
  }

  private attempt(step: () => void): void {
    try {
      step()
    } catch (error) {
      if (!isRefusal(error)) throw error
    }
  }

  private async attemptLater(change: Promise<void>): Promise<void> {
    await change.catch((error: unknown) => {
      if (!isRefusal(error)) throw error
    })
  }

  private anyStream(): Stream {
    return this.streams[this.random.below(this.streams.length)]
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof CudaError || error instanceof OutOfMemoryError || error instanceof PoolError
}

function order(earlier: Stream, later: Stream): void {
  if (earlier === later) return
  using event = new Event(earlier.context)
  event.record(earlier)
  later.wait(event)
}

describe('random programs of a pool that sleeps', () => {
  for (const seed of seedsFrom(SEED, 12, STEPS / USUAL_STEPS)) {
    it(`keep every byte, seed ${seed}`, async () => {
      const program = new Program(new Random(seed))
      await program.run()
      const { sleeps, wakes } = program.counts
      assert.ok(sleeps > 3 && wakes > 3, JSON.stringify(program.counts))
    })
  }
})
