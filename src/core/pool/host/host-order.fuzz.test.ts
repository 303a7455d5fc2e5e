// Random programs on host pools, of one thread and shared: copies arrive as they were submitted, and no memory in use
// changes.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import { seedsFrom } from '../../base/seeds.fixture.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { HostBuffer } from './host-buffer.js'
import type { HostPool } from './host-pool.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 1000
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)
const BYTES = 256 * KiB

interface Held {
  readonly host: HostBuffer
  /** the byte that fills the buffer once its streams are done */
  stamp: number
  /** streams with work on the buffer that the program has not waited for */
  readonly busy: Set<Stream>
}

/** A device buffer with its expected final contents. */
class Target {
  /** the last byte of each piece copied from the start, and its expected value */
  private readonly ends = new Map<number, number>()

  constructor(readonly buffer: DeviceBuffer) {}

  get stream(): Stream {
    return this.buffer.stream
  }

  /** The first `bytes` get the contents `stamp`. */
  expect(bytes: number, stamp: number): void {
    for (const end of this.ends.keys()) if (end < bytes) this.ends.delete(end)
    this.ends.set(bytes - 1, stamp)
  }

  verify(): void {
    const contents = this.buffer.readSync()
    for (const [end, stamp] of this.ends) assert.equal(contents[end], stamp, 'a copy arrived as it was submitted')
  }
}

/** Weights of the steps. */
const OFTEN = {
  allocate: 5,
  refill: 1,
  copyTo: 4,
  write: 2,
  copyFrom: 2,
  free: 5,
  hold: 1,
  release: 1,
  synchronize: 1,
  settle: 1,
  trim: 1,
  verify: 2,
}
type Step = keyof typeof OFTEN
const LOTS = (Object.keys(OFTEN) as Step[]).flatMap(step => Array<Step>(OFTEN[step]).fill(step))
const LIMIT = 3 * MiB
const MOST_HOLDS = 20

/** A random program that keeps the rules for users, and verifies all contents all the time. */
class Program {
  readonly taken = new Map<string, number>()
  private readonly random: Random
  private readonly device: TestDevice
  private readonly pool: HostPool
  private readonly targets: readonly Target[]
  private readonly held: Held[] = []
  private readonly holds: (() => void)[] = []
  private stamps = 0

  constructor(seed: number, progress: 'eager' | 'seeded', shared: boolean) {
    this.random = new Random(seed)
    this.device = new TestDevice({ seed, progress })
    const options = { maxPoolBytes: LIMIT, segmentBytes: 512 * KiB }
    this.pool = shared ? this.device.createSharedHost(options).pool : this.device.createHostPool(options)
    const pool = this.device.createPool()
    const streams = [this.device.defaultStream, this.device.createStream(), this.device.createStream()]
    this.targets = streams.map(stream => new Target(pool.allocate(BYTES, stream)))
  }

  run(steps: number): void {
    for (let step = 0; step < steps; step++) {
      this.take(this.any(LOTS)!)
      if (step % 50 === 0) this.check()
    }
    for (const release of this.holds) release()
    for (const { stream } of this.targets) this.synchronize(stream)
    for (const target of this.targets) target.verify()
    for (const one of this.held) {
      verify(one)
      one.host.free()
    }
    for (const { stream } of this.targets) this.synchronize(stream)
    this.pool.processDeferred()
    const { liveBytes, pendingBytes } = this.pool.stats()
    assert.deepEqual([liveBytes, pendingBytes], [0, 0])
    this.pool.allocate(LIMIT).free()
    this.pool.trimTo(0)
    assert.equal(this.pool.stats().reservedBytes, 0)
    this.pool.close()
  }

  private take(step: Step): void {
    this.count(step)
    const { pool, held, holds, random } = this
    const target = this.any(this.targets)!
    if (step === 'allocate') this.allocate(pool.tryAllocate(random.logUniform(1, BYTES)))
    else if (step === 'free') this.free()
    else if (step === 'hold') {
      if (holds.length < MOST_HOLDS) holds.push(this.device.hold(target.stream))
    } else if (step === 'release') holds.splice(random.below(holds.length + 1), 1)[0]?.()
    else if (step === 'synchronize') this.synchronize(target.stream)
    else if (step === 'settle') pool.processDeferred()
    else if (step === 'trim') pool.trimTo(random.below(2) * MiB)
    else if (step === 'verify') held.forEach(verify)
    else this.use(step, target)
  }

  private allocate(host: HostBuffer | null): void {
    if (host === null) return
    this.held.push({ host, stamp: 0, busy: new Set() })
    this.fill(this.held.at(-1)!)
  }

  private fill(one: Held): void {
    one.stamp = ++this.stamps & 255
    one.host.bytes.fill(one.stamp)
  }

  /** Leaves memory alone while streams work on it. */
  private use(step: Step, target: Target): void {
    const one = this.any(this.held)
    if (one === undefined || one.busy.size > 0) return
    const { host, busy } = one
    const { buffer, stream } = target
    if (step === 'refill' || step === 'copyFrom') this.fill(one)
    if (step === 'refill') return
    if (step === 'copyTo') host.copyTo(buffer)
    if (step === 'write') {
      host.recordUse(stream)
      buffer.write(host.bytes)
    }
    if (step === 'copyFrom') {
      buffer.fill(one.stamp, 0, host.byteLength)
      host.bytes.fill(0)
      host.copyFrom(buffer, 0, 0, host.byteLength)
    }
    target.expect(host.byteLength, one.stamp)
    busy.add(stream)
  }

  private free(): void {
    if (this.held.length === 0) return
    const [one] = this.held.splice(this.random.below(this.held.length), 1)
    verify(one)
    if (this.random.below(4) === 0) one.host.free(this.any(this.targets)!.stream)
    else one.host.free()
  }

  private synchronize(stream: Stream): void {
    stream.synchronize()
    for (const { busy } of this.held) busy.delete(stream)
  }

  private check(): void {
    this.pool.check()
    const { liveBuffers, pendingBytes } = this.pool.stats()
    assert.equal(liveBuffers, this.held.length)
    if (pendingBytes > 0) this.count('pending')
  }

  private count(what: string): void {
    this.taken.set(what, (this.taken.get(what) ?? 0) + 1)
  }

  private any<T>(from: readonly T[]): T | undefined {
    return from[this.random.below(from.length)]
  }
}

function verify({ host, stamp, busy }: Held): void {
  if (busy.size > 0) return
  const { bytes } = host
  for (const index of [0, bytes.length >> 1, bytes.length - 1]) assert.equal(bytes[index], stamp)
}

describe('random programs of host memory', () => {
  for (const seed of seedsFrom(SEED, 6, STEPS / USUAL_STEPS)) {
    for (const progress of ['eager', 'seeded'] as const) {
      it(`${progress}, POOL_FUZZ_SEED=${seed}`, () => {
        const program = new Program(seed, progress, seed % 2 === 0)
        program.run(STEPS)
        const { taken } = program
        for (const step of ['copyTo', 'write', 'copyFrom', 'free']) assert.ok((taken.get(step) ?? 0) > STEPS / 40, step)
        assert.ok((taken.get('pending') ?? 0) > 2, 'work was pending')
      })
    }
  }
})
