// Random programs over four streams of a real GPU, judged by contents: each buffer is stamped by kernels in stream
// order, and kernels compare it, also on other streams and just before it is freed. Kernels that do nothing for a
// while keep work pending. The host never waits for the sake of the test, so that much is under way at a time.
// Without a GPU it fails.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import { signal } from '../../order/order.fixture.js'
import type { Stream } from '../../order/stream.js'
import { VirtualBacking } from '../backing/virtual-backing.js'
import type { DeviceBuffer } from '../buffer.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import type { CachingPool } from './caching-pool.js'
import type { PoolOptions } from './options.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? 2000)
const LIMIT = 256 * MiB
const STREAMS = 4
const MOST_SPIN_MS = 1
const CHECK_EVERY = 100

const gpu = new GpuDevice()
after(() => gpu.close())

interface Held {
  readonly buffer: DeviceBuffer
  /** where the next use goes; its own stream as long as that is open */
  stream: Stream
  stamp: number
  /** streams that used it and that nothing orders before `stream` yet; announced to the pool */
  readonly users: Set<Stream>
}

/** How often each step is taken, in parts of their sum. */
const STEP_WEIGHTS = { allocate: 30, free: 27, stamp: 8, use: 14, spin: 9, settle: 4, observe: 5, replaceStream: 2 }
type Step = keyof typeof STEP_WEIGHTS

class Program {
  readonly taken = new Map<string, number>()
  private readonly random: Random
  readonly pool: CachingPool
  private readonly streams = Array.from({ length: STREAMS }, () => gpu.createStream())
  private readonly held: Held[] = []
  private stamps = 0

  constructor(seed: number, options: PoolOptions) {
    this.random = new Random(seed)
    this.pool = gpu.createPool({ maxPoolBytes: LIMIT, ...options })
  }

  run(steps: number): void {
    const choices = Object.entries(STEP_WEIGHTS).flatMap(([step, weight]) => Array<Step>(weight).fill(step as Step))
    for (let count = 0; count < steps; count++) {
      const step = choices[this.random.below(choices.length)]
      this.note(step)
      this[step]()
      if (count % CHECK_EVERY === 0) this.pool.check()
    }
    this.finish()
  }

  private note(what: string): void {
    this.taken.set(what, (this.taken.get(what) ?? 0) + 1)
  }

  private allocate(): void {
    const { random } = this
    const stream = this.anyStream()
    const bytes = random.below(4) === 0 ? (1 + random.below(12)) * 2 * MiB : random.logUniform(4, 16 * MiB)
    const buffer = this.pool.tryAllocate(bytes, stream)
    if (buffer === null) {
      this.note('ranOut')
      for (let count = random.below(this.held.length + 1); count > 0; count--) this.free()
      return
    }
    this.held.push({ buffer, stream, stamp: 0, users: new Set() })
    this.stampNow(this.held[this.held.length - 1])
  }

  private free(): void {
    if (this.held.length === 0) return
    const [held] = this.held.splice(this.random.below(this.held.length), 1)
    gpu.compare(held.buffer, held.stamp, held.stream)
    const on = this.random.below(3) === 0 ? this.anyStream() : held.stream
    if (on !== held.stream) {
      signal(held.stream, on)
      gpu.compare(held.buffer, held.stamp, on)
      this.note('freedElsewhere')
    }
    held.buffer.free(on)
  }

  private stamp(): void {
    const held = this.anyHeld()
    if (held !== undefined) this.stampNow(held)
  }

  /** Another stream compares, too: from now on it is waited for by the buffer's stream, or only by the pool. */
  private use(): void {
    const held = this.anyHeld()
    if (held === undefined) return
    const other = this.anyStream()
    signal(held.stream, other)
    if (this.random.below(2) === 0) gpu.spin(other, this.random.fraction() * MOST_SPIN_MS)
    gpu.compare(held.buffer, held.stamp, other)
    held.buffer.recordUse(other)
    if (this.random.below(2) === 0) signal(other, held.stream)
    else held.users.add(other)
  }

  private spin(): void {
    gpu.spin(this.anyStream(), this.random.fraction() * MOST_SPIN_MS)
  }

  private settle(): void {
    if (this.random.below(2) === 0) this.pool.processDeferred()
    else this.pool.trimTo(this.random.below(LIMIT))
  }

  private observe(): void {
    const stream = this.anyStream()
    if (this.random.below(4) === 0) stream.synchronize()
    else stream.query()
  }

  /** A stream ends with its work pending, and another takes its place and its buffers. */
  private replaceStream(): void {
    const index = this.random.below(STREAMS)
    const closing = this.streams[index]
    const successor = gpu.createStream()
    signal(closing, successor)
    for (const held of this.held) {
      if (held.users.delete(closing)) held.users.add(successor)
      if (held.stream !== closing) continue
      held.stream = successor
      held.buffer.recordUse(successor)
    }
    closing.close()
    this.streams[index] = successor
  }

  private stampNow(held: Held): void {
    for (const user of held.users) signal(user, held.stream)
    held.users.clear()
    held.stamp = ++this.stamps
    gpu.stamp(held.buffer, held.stamp, held.stream)
  }

  private anyStream(): Stream {
    return this.streams[this.random.below(STREAMS)]
  }

  private anyHeld(): Held | undefined {
    return this.held[this.random.below(this.held.length)]
  }

  private finish(): void {
    for (const { buffer, stamp, stream } of this.held) gpu.compare(buffer, stamp, stream)
    assert.deepEqual(gpu.damages(), [])
    for (const { buffer } of this.held) buffer.free()
    const whole = this.pool.allocate(LIMIT, this.streams[0])
    gpu.stamp(whole, 1)
    gpu.compare(whole, 1)
    assert.deepEqual(gpu.damages(), [])
    whole.free()
    this.streams[0].synchronize()
    this.pool.trimTo(0)
    assert.equal(this.pool.stats().reservedBytes, 0)
    assert.deepEqual(this.pool.close(), { heldBuffers: 0, heldBytes: 0 })
    for (const stream of this.streams) stream.close()
  }
}

describe(`random programs on a GPU (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  for (const backing of ['virtual', 'segments', 'registrable'] as const) {
    for (const seed of [SEED, SEED + 1000]) {
      it(`${backing}, seed ${seed}`, () => {
        const program = new Program(seed, { backing })
        program.run(STEPS)
        for (const what of [...Object.keys(STEP_WEIGHTS), 'ranOut', 'freedElsewhere']) {
          assert.ok(program.taken.has(what), `${what} happened`)
        }
        if (program.pool.central.backing instanceof VirtualBacking) assert.ok(program.pool.central.backing.stitched > 0)
      })
    }
  }
})
