// Random programs over several streams, judged twice: every grant by a shadow of the order of work, and all memory by
// its contents. Each buffer is filled with a stamp of its own in stream order, and kernels in stream order compare.
// Held operations keep work pending for long; streams come and go with work unfinished. A program runs in phases,
// ends with everything freed, and with the whole capacity in one piece.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import { registerSimulatedKernel } from '../../driver/simulated-kernels.js'
import type { Kernel } from '../../kernel/kernel.js'
import { Module } from '../../kernel/module.js'
import { Event } from '../../order/event.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, TestDevice } from '../pool-fixture.suite.js'
import type { CachingPool } from './caching-pool.js'
import type { PoolOptions } from './options.js'
import { ShadowOrder, UnsafeGrant, type Use } from './shadow-order.suite.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? 1000)
const CAPACITY = 64 * MiB
const GRANULE = 1 * MiB
const MOST_STREAMS = 6
const EVENTS = 4
const CHECK_EVERY = 25

const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry compare_stamp(.param .u64 words, .param .u64 count, .param .u32 stamp) { ret; }`

/** Wrong contents that kernels found, with the seed of the program. */
const corruptions: string[] = []

registerSimulatedKernel('compare_stamp', ({ args, memory }) => {
  const [ptr, count, stamp] = [args.pointer(0), args.pointer(1), args.uint32(2)]
  for (let sample = 0; sample <= 8; sample++) {
    const index = Math.floor(((count - 1) * sample) / 8)
    const [found] = memory.load(Uint32Array, ptr + index * 4, 1)
    if (found !== stamp) corruptions.push(`word ${index} of ${count} is ${found}, not ${stamp}`)
  }
})

interface Held {
  readonly buffer: DeviceBuffer
  readonly words: number
  readonly uses: Use[]
  /** other streams that used it, and those among them that were not announced: the free has to come after these */
  readonly others: Set<Stream>
  readonly silent: Set<Stream>
  stamp: number
}

/** How often each step is taken, in parts of their sum. */
const PHASES = {
  grow: { allocate: 50, free: 15, useElsewhere: 15, hold: 4, release: 4, settle: 6, stream: 4, observe: 4, signal: 12 },
  mix: { allocate: 30, free: 30, useElsewhere: 15, hold: 5, release: 5, settle: 6, stream: 4, observe: 5, signal: 12 },
  shrink: {
    allocate: 12,
    free: 48,
    useElsewhere: 10,
    hold: 3,
    release: 6,
    settle: 10,
    stream: 5,
    observe: 6,
    signal: 12,
  },
} as const
type Step = keyof (typeof PHASES)['grow']

class Program {
  /** steps taken, for assertions that something happened at all */
  readonly taken = new Map<string, number>()
  insertedWaits = 0
  private readonly random: Random
  private readonly device: TestDevice
  private readonly pool: CachingPool
  readonly shadow: ShadowOrder
  private readonly compare: Kernel
  private readonly streams: Stream[]
  /** recorded now and then, and waited for later by any stream */
  private readonly events: Event[]
  private readonly held: Held[] = []
  private holds: { stream: Stream; release: () => void }[] = []
  private stamps = 0

  constructor(seed: number, progress: 'eager' | 'seeded', options: PoolOptions) {
    this.random = new Random(seed)
    this.device = new TestDevice({ capacityBytes: CAPACITY, granularityBytes: GRANULE, progress, seed })
    this.pool = this.device.createPool({ maxPoolBytes: CAPACITY, ...options })
    this.shadow = new ShadowOrder(this.device)
    this.compare = new Module(this.device.context, this.device.defaultStream, PTX).kernel('compare_stamp')
    this.streams = [this.device.defaultStream, this.device.createStream(), this.device.createStream()]
    this.events = Array.from({ length: EVENTS }, (_, index) => {
      const event = new Event(this.device.context)
      event.record(this.streams[index % this.streams.length])
      return event
    })
  }

  run(steps: number): void {
    corruptions.length = 0
    const phases = [PHASES.grow, PHASES.mix, PHASES.shrink]
    for (let step = 0; step < steps; step++) {
      this.take(this.pick(phases[Math.floor((step * 6) / steps) % 3]))
      if (step % CHECK_EVERY === 0) assertConsistent(this.pool, this.spareBytes())
      assert.deepEqual(corruptions, [], `at step ${step}`)
    }
    this.finish()
  }

  private take(step: Step): void {
    this.taken.set(step, (this.taken.get(step) ?? 0) + 1)
    this[step]()
  }

  private pick(weights: Readonly<Record<Step, number>>): Step {
    const entries = Object.entries(weights) as [Step, number][]
    let rest = this.random.below(entries.reduce((sum, [, weight]) => sum + weight, 0))
    for (const [step, weight] of entries) {
      rest -= weight
      if (rest < 0) return step
    }
    return 'observe'
  }

  private allocate(): void {
    const stream = this.anyStream()
    const { random } = this
    const bytes =
      random.below(3) === 0
        ? (1 + random.below(6)) * GRANULE
        : random.logUniform(4, [64 * KiB, 8 * MiB][random.below(2)])
    const alignment = random.below(8) === 0 ? 2 ** random.below(22) : undefined
    const buffer = this.pool.tryAllocate(bytes, stream, alignment)
    if (buffer === null) {
      this.ranOut(bytes)
      return
    }
    this.shadow.grant({ ptr: buffer.ptr, end: buffer.ptr + bytes }, stream)
    const held: Held = {
      buffer,
      words: Math.floor(bytes / 4),
      uses: [],
      others: new Set(),
      silent: new Set(),
      stamp: 0,
    }
    this.fill(held, stream)
    this.held.push(held)
  }

  /** A refusal is right when every way of placing the block needs more granules than there are without live bytes. */
  private ranOut(bytes: number): void {
    this.taken.set('ranOut', (this.taken.get('ranOut') ?? 0) + 1)
    const taken = new Set<number>()
    for (const { ptr, blockBytes } of this.pool.live()) {
      for (let granule = Math.floor(ptr / GRANULE); granule * GRANULE < ptr + blockBytes; granule++) taken.add(granule)
    }
    const blockBytes = this.pool.config.powerOfTwo ? 2 ** Math.ceil(Math.log2(bytes)) : bytes
    const needed = Math.ceil(blockBytes / GRANULE) + 3 // an alignment of 2 MiB and a start inside a granule
    if (this.pool.central.backing.kind === 'segments') assert.ok(taken.size > 0, 'out of memory with nothing held')
    else assert.ok(taken.size + needed > CAPACITY / GRANULE, `${bytes} bytes refused with ${taken.size} granules taken`)
  }

  private free(): void {
    if (this.held.length === 0) return
    const index = this.random.below(this.held.length)
    const [held] = this.held.splice(index, 1)
    const { buffer } = held
    const own = buffer.stream
    const on = own.closed || this.random.below(4) > 0 ? own : this.anyStream()
    if (on !== own) this.order(own, on)
    for (const stream of held.silent) if (stream !== on) this.orderOrAnnounce(held, stream, on)
    if (!on.closed && this.random.below(2) === 0) this.check(held, on)
    const span = { ptr: buffer.ptr, end: buffer.ptr + buffer.byteLength }
    if (on === own && this.random.below(4) === 0) this.pool.deallocate(span.ptr)
    else buffer.free(on)
    this.shadow.free(span, held.uses)
    assert.throws(() => buffer.free(), PoolError)
  }

  /** Another stream reads a buffer, or writes it, in order; later the free is announced to it or ordered after it. */
  private useElsewhere(): void {
    const held = this.held[this.random.below(this.held.length)]
    const other = this.anyStream()
    if (held === undefined || held.buffer.stream.closed || held.buffer.stream === other) return
    const own = held.buffer.stream
    this.order(own, other)
    this.check(held, other)
    held.others.add(other)
    held.silent.add(other)
    const users = [...held.others].filter(stream => stream !== other)
    if (this.random.below(3) === 0 && users.every(stream => !stream.closed)) {
      for (const stream of users) this.order(stream, other)
      this.fill(held, other)
      this.order(other, own)
    }
    if (this.random.below(2) === 0) this.announce(held, other)
  }

  private hold(): void {
    const stream = this.anyStream()
    this.holds.push({ stream, release: this.device.hold(stream) })
  }

  private release(): void {
    if (this.holds.length > 0) this.holds.splice(this.random.below(this.holds.length), 1)[0].release()
  }

  private settle(): void {
    if (this.random.below(2) === 0) this.pool.processDeferred()
    else this.pool.trimTo(this.random.below(CAPACITY))
  }

  private stream(): void {
    if (this.streams.length < MOST_STREAMS && this.random.below(2) === 0) {
      this.streams.push(this.device.createStream())
      return
    }
    if (this.streams.length < 3) return
    const [closing] = this.streams.splice(1 + this.random.below(this.streams.length - 1), 1)
    for (const held of this.held) if (held.silent.has(closing)) this.announce(held, closing)
    this.holds = this.holds.filter(({ stream }) => stream !== closing)
    closing.close()
  }

  /** The user looks at streams and events, which moves the clocks. */
  private observe(): void {
    const stream = this.anyStream()
    const choice = this.random.below(6)
    if (choice === 0 && this.random.below(4) === 0) this.device.clocks.synchronize()
    else if (choice === 0) stream.synchronize()
    else if (choice < 3) stream.query()
    else {
      const event = new Event(this.device.context)
      event.record(stream)
      if (choice === 3) event.query()
      if (choice === 4) event.synchronize()
      event.close()
    }
  }

  /** Order between streams that has nothing to do with any buffer, and goes over several of them. */
  private signal(): void {
    const event = this.events[this.random.below(EVENTS)]
    const choice = this.random.below(16)
    if (choice < 6) event.record(this.anyStream())
    else if (choice < 13) this.anyStream().wait(event)
    else if (choice < 15) event.query()
    else event.synchronize()
  }

  private anyStream(): Stream {
    return this.streams[this.random.below(this.streams.length)]
  }

  private fill(held: Held, stream: Stream): void {
    held.stamp = ++this.stamps
    const driver = this.device.context.activate()
    driver.cuMemsetD32Async(held.buffer.ptr, held.stamp, held.words, stream.handle)
    held.uses.push(this.shadow.use(stream))
  }

  private check(held: Held, stream: Stream): void {
    this.compare.launch({ grid: 1, block: 1, stream }, held.buffer, held.words, held.stamp)
    held.uses.push(this.shadow.use(stream))
  }

  private order(earlier: Stream, later: Stream): void {
    const event = new Event(this.device.context)
    event.record(earlier)
    later.wait(event)
    event.close()
  }

  /** Orders the work of `stream` on the buffer before the next work of `later`, or announces it to the pool. */
  private orderOrAnnounce(held: Held, stream: Stream, later: Stream): void {
    if (later.closed) this.announce(held, stream)
    else this.order(stream, later)
  }

  private announce(held: Held, stream: Stream): void {
    held.buffer.recordUse(stream)
    held.silent.delete(stream)
  }

  /** Memory that a growth took and did not need; whole granules. */
  private spareBytes(): number {
    const blocks = this.pool.snapshot().ranges.flatMap(range => range.blocks)
    const used = blocks.filter(block => block.state !== 'absent').reduce((sum, block) => sum + block.bytes, 0)
    const spare = this.pool.stats().reservedBytes - used
    assert.ok(spare >= 0 && spare % GRANULE === 0)
    return this.pool.central.backing.kind === 'virtual' ? spare : 0
  }

  private finish(): void {
    for (const held of this.held) if (!held.buffer.stream.closed) this.check(held, held.buffer.stream)
    for (const { release } of this.holds.splice(0)) release()
    this.device.context.activate().cuCtxSynchronize()
    assert.deepEqual(corruptions, [])
    for (const { buffer } of this.held.splice(0)) buffer.free()
    assertConsistent(this.pool, this.spareBytes())
    const whole = this.pool.allocate(CAPACITY, this.streams[1])
    whole.free()
    this.streams[1].synchronize()
    this.pool.processDeferred()
    this.pool.trimTo(0)
    assert.equal(this.device.freeBytes(), CAPACITY)
    this.insertedWaits = this.pool.stats().insertedWaits
    const { lostBuffers, lostBytes } = this.pool.close()
    assert.deepEqual([lostBuffers, lostBytes], [0, 0])
  }
}

const OPTIONS: readonly (readonly [name: string, options: PoolOptions])[] = [
  ['virtual', { backing: 'virtual' }],
  ['virtual, giving back', { backing: 'virtual', releaseThresholdBytes: 16 * MiB }],
  ['segments', { backing: 'segments' }],
  ['segments, waiting before growing', { backing: 'segments', crossStreamReuse: 'wait-before-grow' }],
  ['virtual, waiting before growing', { backing: 'virtual', crossStreamReuse: 'wait-before-grow' }],
  ['virtual, ordered', { backing: 'virtual', crossStreamReuse: 'ordered' }],
  ['virtual, deterministic', { backing: 'virtual', deterministic: true }],
  ['segments, deterministic', { backing: 'segments', deterministic: true }],
  // Without redzones, since the program wants all of the memory; it makes no mistake, and none is found.
  ['virtual, debug', { backing: 'virtual', debug: { sites: 0, redzoneBytes: 0, quarantineBytes: 4 * MiB } }],
  ['powers of two', { sizeClasses: 'powerOfTwo', minBlockBytes: 4096 }],
]

describe(`random programs (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  let insertedWaits = 0
  for (const [name, options] of OPTIONS) {
    for (const progress of ['eager', 'seeded'] as const) {
      for (const seed of [SEED, SEED + 1000]) {
        it(`${name}, ${progress} work, seed ${seed}`, () => {
          const program = new Program(seed, progress, options)
          program.run(STEPS)
          for (const step of Object.keys(PHASES.grow)) assert.ok(program.taken.has(step), `${step} happened`)
          assert.ok(program.taken.has('ranOut'), 'memory ran out')
          assert.ok(program.shadow.takeovers > 10, 'streams got memory of other ones')
          if (options.crossStreamReuse === 'ordered') assert.equal(program.insertedWaits, 0)
          else insertedWaits += program.insertedWaits
        })
      }
    }
  }

  it('streams were made to wait for the memory of others', () => assert.ok(insertedWaits > 0))

  it('a pool that hands out freed memory at once is caught: by the shadow, by contents, or by a fault', () => {
    for (const backing of ['virtual', 'segments'] as const) {
      for (let seed = SEED; seed < SEED + 5; seed++) {
        const program = new Program(seed, 'eager', { backing, streamOrdered: false })
        assert.throws(
          () => program.run(STEPS),
          (error: unknown) => [UnsafeGrant, CudaError, assert.AssertionError].some(kind => error instanceof kind),
          `seed ${seed}`,
        )
      }
    }
  })
})
