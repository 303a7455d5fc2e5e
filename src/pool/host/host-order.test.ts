// When host memory is handed out again. A copy accesses it when it runs, and a program writes new memory at once. So
// memory with a pending copy is handed out to no stream until the host knows the copy complete. Addresses show which
// memory was handed out; contents on the device show whether a copy was damaged.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import { Event } from '../../order/event.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool-fixture.suite.js'
import type { HostBuffer } from './host-buffer.js'
import type { HostPool } from './host-pool.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? 1000)
const BYTES = 256 * KiB

function open(byThreads: boolean, limitBytes = 4 * MiB) {
  const device = new TestDevice()
  const options = { maxPoolBytes: limitBytes, segmentBytes: 1 * MiB }
  const pool = byThreads ? device.createSharedHost(options).pool : device.createHostPool(options)
  const [stream, other] = [device.createStream(), device.createStream()]
  const devicePool = device.createPool()
  return { device, pool, stream, other, target: devicePool.allocate(BYTES, stream), devicePool }
}

/** Allocates everything that needs no wait, overwrites it like a program would, and frees it again. */
function scribble(pool: HostPool, stream?: Stream): void {
  const held: HostBuffer[] = []
  const { pendingBytes, limitBytes } = pool.stats()
  while (held.length * BYTES < limitBytes - pendingBytes) held.push(pool.allocate(BYTES, stream))
  for (const buffer of held) {
    buffer.bytes.fill(0xee)
    buffer.free()
  }
}

/** Ways to free host memory that has a pending copy to `target`. */
const WAYS: Readonly<Record<string, (pool: HostPool, target: DeviceBuffer) => void>> = {
  'copied by copyTo': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    host.copyTo(target)
    host.free()
  },
  'allocated for the stream': (pool, target) => {
    const host = filled(pool.allocate(BYTES, target.stream))
    target.write(host.bytes)
    host.free()
  },
  'announced before the work': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    host.recordUse(target.stream)
    target.write(host.bytes)
    host.free()
  },
  'announced after the work': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    target.write(host.bytes)
    host.recordUse(target.stream)
    host.free()
  },
  'freed on the stream': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    target.write(host.bytes)
    host.free(target.stream)
  },
  'an array at the end of its block': (pool, target) => {
    using array = pool.allocateArray(Uint8Array, BYTES)
    array.elements.fill(1)
    array.copyTo(target)
  },
}

function filled(host: HostBuffer): HostBuffer {
  host.bytes.fill(1)
  return host
}

for (const byThreads of [false, true])
  describe(`host memory under pending work${byThreads ? ', shared by threads' : ''}`, () => {
    const setUp = (limitBytes?: number) => open(byThreads, limitBytes)
    for (const [name, useAndFree] of Object.entries(WAYS)) {
      it(`memory stays back: ${name}`, () => {
        const { device, pool, stream, target } = setUp()
        const release = device.hold(stream)
        useAndFree(pool, target)
        assert.deepEqual([pool.stats().pendingBytes, pool.stats().liveBuffers], [BYTES, 0])
        scribble(pool)
        assert.equal(pool.processDeferred(), 0)
        release()
        assert.deepEqual(new Set(target.readSync()), new Set([1]))
        assert.equal(pool.processDeferred(), 1)
        assert.equal(pool.stats().pendingBytes, 0)
        pool.check()
      })
    }

    it('memory stays back even for the stream that uses it', () => {
      const { device, pool, stream, target } = setUp()
      const host = pool.allocate(BYTES, stream)
      const { byteOffset, buffer } = host.bytes.fill(1)
      const release = device.hold(stream)
      host.copyTo(target)
      host.free(stream)
      const next = pool.allocate(BYTES, stream)
      assert.ok(next.bytes.buffer !== buffer || next.bytes.byteOffset !== byteOffset)
      next.bytes.fill(2)
      release()
      assert.equal(target.readSync()[BYTES - 1], 1)
    })

    it('a late copy does not write memory that was handed out again', () => {
      const { device, pool, stream, target } = setUp()
      target.fill(9)
      const release = device.hold(stream)
      const host = pool.allocate(BYTES)
      host.copyFrom(target)
      host.free()
      const held = Array.from({ length: 15 }, () => pool.allocate(BYTES))
      for (const buffer of held) buffer.bytes.fill(1)
      release()
      for (const buffer of held) assert.deepEqual(new Set(buffer.bytes), new Set([1]))
    })

    it('memory stays back until every stream that uses it is done', () => {
      const { device, pool, stream, other, target, devicePool } = setUp()
      const second = devicePool.allocate(BYTES, other)
      const host = pool.allocate(BYTES)
      host.bytes.fill(1)
      const releases = [device.hold(stream), device.hold(other)]
      host.copyTo(target)
      host.copyTo(second)
      host.free()
      releases[0]()
      assert.equal(pool.processDeferred(), 0)
      scribble(pool)
      releases[1]()
      assert.equal(pool.processDeferred(), 1)
      assert.deepEqual([target.readSync()[0], second.readSync()[0]], [1, 1])
    })

    it('the host waits for it when all other memory is in use', () => {
      const { device, pool, stream, target } = setUp(1 * MiB)
      const held = Array.from({ length: 4 }, () => pool.allocate(BYTES))
      device.hold(stream)
      held.forEach((host, index) => {
        host.bytes.fill(index + 1)
        host.copyTo(target)
        host.free()
      })
      const whole = pool.allocate(1 * MiB)
      assert.equal(stream.query(), true)
      whole.bytes.fill(0xee)
      assert.deepEqual(new Set(target.readSync()), new Set([4]))
    })

    it('a new segment comes before a wait', () => {
      const { device, pool, stream, target } = setUp(2 * MiB)
      const release = device.hold(stream)
      for (let count = 0; count < 8; count++) {
        const host = pool.allocate(BYTES)
        host.copyTo(target)
        host.free()
      }
      assert.equal(stream.query(), false)
      assert.equal(pool.stats().reservedBytes, 2 * MiB)
      release()
    })

    it('a use outlives its stream, and another stream with the same slot does not complete it', () => {
      const { device, pool, target, devicePool } = setUp()
      const closing = device.createStream()
      const copy = devicePool.allocate(BYTES, closing)
      const host = pool.allocate(BYTES)
      host.bytes.fill(1)
      const gate = device.hold(target.stream)
      const event = new Event(device.context)
      event.record(target.stream)
      closing.wait(event)
      host.copyTo(copy)
      closing.close()
      host.free()
      for (let count = 0; count < 3; count++) device.createStream().synchronize()
      assert.equal(pool.processDeferred(), 0)
      scribble(pool)
      gate()
      assert.equal(pool.processDeferred(), 1)
      target.copyFromSync(devicePool.allocate(BYTES, target.stream)) // any driver call of the stream will do
      const seen = new Uint8Array(BYTES)
      device.context.activate().cuMemcpyDtoH(seen, copy.ptr)
      assert.deepEqual(new Set(seen), new Set([1]))
    })
  })

for (const byThreads of [false, true])
  describe(`host memory whose work is known complete${byThreads ? ', shared by threads' : ''}`, () => {
    const setUp = (limitBytes?: number) => open(byThreads, limitBytes)
    const waysToKnow: readonly (readonly [string, (stream: Stream, event: Event) => void | Promise<void>])[] = [
      ['a synchronise', stream => stream.synchronize()],
      ['a query', stream => void stream.query()],
      ['a promise', stream => stream.finished()],
      ['an event', (_, event) => event.synchronize()],
    ]
    for (const [name, know] of waysToKnow) {
      it(`it is handed out at once, without a driver call, after ${name}, even with later work submitted`, async () => {
        const { device, pool, stream, target } = setUp(64 * MiB)
        const host = pool.allocate(BYTES)
        const event = new Event(device.context)
        host.copyTo(target)
        host.copyFrom(target, 0, 0, 1)
        event.record(stream)
        await know(stream, event)
        const release = device.hold(stream)
        target.fill(3)
        const before = JSON.stringify([...device.driver.calls])
        const { bytes } = host
        host.free()
        const next = pool.allocate(BYTES)
        assert.equal(JSON.stringify([...device.driver.calls]), before)
        assert.deepEqual([next.bytes.buffer, next.bytes.byteOffset], [bytes.buffer, bytes.byteOffset])
        assert.equal(pool.stats().pendingBytes, 0)
        release()
      })
    }

    it('an announcement covers work submitted after it, until the free', () => {
      const { device, pool, stream, target } = setUp()
      const host = pool.allocate(BYTES)
      host.bytes.fill(1)
      host.recordUse(stream)
      host.copyTo(target)
      stream.synchronize()
      const release = device.hold(stream)
      target.write(host.bytes)
      host.free()
      scribble(pool)
      release()
      assert.deepEqual(new Set(target.readSync()), new Set([1]))
    })

    it('a new allocation of the same block begins without uses', () => {
      const { device, pool, stream, target } = setUp(64 * MiB)
      pool.allocate(BYTES).copyTo(target)
      const host = pool.allocate(BYTES)
      host.copyTo(target)
      stream.synchronize()
      host.free()
      const again = pool.allocate(BYTES)
      const release = device.hold(stream)
      again.free()
      assert.equal(pool.stats().pendingBytes, 0)
      release()
    })
  })

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
  for (let seed = SEED; seed < SEED + 6; seed++) {
    for (const progress of ['eager', 'seeded'] as const) {
      it(`copies arrive undamaged with ${progress} work, POOL_FUZZ_SEED=${seed}`, () => {
        const program = new Program(seed, progress, seed % 2 === 0)
        program.run(STEPS)
        const { taken } = program
        for (const step of ['copyTo', 'write', 'copyFrom', 'free']) assert.ok((taken.get(step) ?? 0) > STEPS / 40, step)
        assert.ok((taken.get('pending') ?? 0) > 2, 'work was pending')
      })
    }
  }
})
