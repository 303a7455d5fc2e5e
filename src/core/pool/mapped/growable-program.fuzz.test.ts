// Random programs of growable buffers that share a small device, compared with a shadow of the expected bytes. Fills
// and copies run on several streams. Held operations keep them pending while buffers shrink, grow again and are
// freed, and the simulated device faults when memory is unmapped under work. Some driver calls are refused. In the
// end all memory is given back.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen a program; test names contain the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import { seedsFrom } from '../../base/seeds.fixture.js'
import { signal } from '../../order/order.fixture.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceArray } from '../array.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { GrowableBuffer } from './growable-buffer.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 1000
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)
const CAPACITY = 4 * MiB
const GRANULE = 64 * KiB
/** bytes of a block of the shadow; lengths are a few bytes less than a multiple */
const BLOCK = 4 * KiB
const MOST_BUFFERS = 4
const STREAMS = 4

interface Held {
  readonly buffer: GrowableBuffer
  readonly ptr: number
  /** the stamp that each block was filled with, -1 for undefined contents */
  stamps: number[]
  readonly views: DeviceArray[]
}

/** Weights of the steps. */
const STEP_WEIGHTS = {
  create: 4,
  free: 2,
  grow: 14,
  shrink: 12,
  fill: 14,
  compare: 12,
  useElsewhere: 12,
  openView: 3,
  closeView: 4,
  hold: 8,
  release: 8,
  settle: 4,
  wait: 1,
  replaceStream: 6,
  refuse: 8,
}
type Step = keyof typeof STEP_WEIGHTS

class Program {
  readonly taken = new Map<string, number>()
  private readonly random: Random
  private readonly device: TestDevice
  private readonly held: Held[] = []
  private readonly freed: GrowableBuffer[] = []
  private readonly streams: Stream[]
  private readonly holds: { stream: Stream; release: () => void }[] = []
  private readonly scratch: DeviceBuffer
  private stamp = 0
  /** whether a driver call of this step may be refused */
  private refusing = false

  constructor(
    seed: number,
    progress: 'eager' | 'seeded',
    private readonly careless = false,
  ) {
    this.random = new Random(seed)
    this.device = new TestDevice({ progress, seed, capacityBytes: CAPACITY, granularityBytes: GRANULE })
    this.streams = Array.from({ length: STREAMS }, () => this.device.createStream())
    this.scratch = this.device.createPlainPool().allocate(256 * KiB)
  }

  run(steps: number): void {
    const choices = Object.entries(STEP_WEIGHTS).flatMap(([step, weight]) => Array<Step>(weight).fill(step as Step))
    this.create()
    for (let count = 0; count < steps; count++) {
      const step = choices[this.random.below(choices.length)]
      this.note(step)
      this.attempt(() => this[step]())
      if (step !== 'refuse') this.refuse(0)
      for (const { buffer, ptr } of this.held) {
        buffer.check()
        assert.equal(buffer.ptr, ptr)
      }
    }
    this.finish()
  }

  private note(what: string): void {
    this.taken.set(what, (this.taken.get(what) ?? 0) + 1)
  }

  /** Runs a step, which a refused driver call may end. */
  private attempt(step: () => void): void {
    try {
      step()
    } catch (error) {
      if (!(error instanceof CudaError) || !error.message.includes('a fault rule')) throw error
      this.note('refused')
    }
  }

  private create(): void {
    if (this.held.length === MOST_BUFFERS) return
    const stream = this.anyStream()
    const blocks = this.random.below(40)
    const before = this.device.freeBytes()
    try {
      const bytes = this.lengthOf(blocks)
      const buffer = this.device.createGrowableBuffer({
        bytes,
        capacityBytes: CAPACITY / 2 ** this.random.below(3),
        stream,
      })
      if (this.careless) Object.assign(buffer.allocation, { isComplete: () => true })
      this.held.push({ buffer, ptr: buffer.ptr, stamps: Array(blocks).fill(-1), views: [] })
    } catch (error) {
      if (!(error instanceof OutOfMemoryError) && !(this.refusing && error instanceof RangeError)) throw error
      this.note('ranOut')
      if (!this.refusing) assert.equal(this.device.freeBytes(), before)
    }
  }

  private free(): void {
    if (this.held.length < 2) return
    const [{ buffer }] = this.held.splice(this.random.below(this.held.length), 1)
    buffer.free(this.random.below(2) === 0 ? this.anyStream() : undefined)
    this.freed.push(buffer)
  }

  private grow(): void {
    const held = this.anyHeld()
    const { buffer, stamps } = held
    const blocks = stamps.length + this.random.logUniform(1, 400) - 1
    const bytes = this.lengthOf(blocks)
    if (bytes < buffer.byteLength) return
    const { byteLength, mappedBytes } = buffer
    const freeBytes = this.device.freeBytes()
    try {
      buffer.grow(bytes)
    } catch (error) {
      assert.deepEqual([buffer.byteLength, buffer.ptr], [byteLength, held.ptr])
      if (error instanceof RangeError) assert.ok(bytes > buffer.capacityBytes)
      else if (error instanceof OutOfMemoryError) {
        this.note('ranOut')
        assert.ok(this.refusing || mappedBytes + freeBytes < bytes, 'there was room')
        // The call may have undone an earlier growth's leftovers.
        if (!this.refusing) assert.ok(buffer.mappedBytes <= mappedBytes && this.device.freeBytes() >= freeBytes)
      } else throw error
      return
    }
    if (bytes > mappedBytes) this.note('mapped')
    else if (blocks > stamps.length) this.note('tookBack')
    if (byteLength % BLOCK !== 0) stamps[stamps.length - 1] = -1 // its last bytes are new
    held.stamps = [...stamps, ...Array<number>(blocks - stamps.length).fill(-1)]
  }

  private shrink(): void {
    const held = this.anyHeld()
    const blocks = this.random.below(held.stamps.length + 1)
    const bytes = Math.min(this.lengthOf(blocks), held.buffer.byteLength)
    const covered = Math.max(0, ...held.views.map(view => view.byteLength))
    if (covered > bytes) {
      assert.throws(() => held.buffer.shrink(bytes), PoolError)
      this.note('keptByView')
      return
    }
    held.buffer.shrink(bytes)
    held.stamps.length = blocks
    if (held.buffer.allocation.range.hasBeyond(bytes)) this.note('pending')
  }

  /** Fills some blocks, on the buffer's own stream. */
  private fill(): void {
    const held = this.anyHeld()
    const [first, count] = this.anyBlocks(held)
    if (count === 0) return
    const stamp = ++this.stamp % 256
    held.buffer.fill(stamp, first * BLOCK, this.bytesOf(held, first, count))
    held.stamps.fill(stamp, first, first + count)
  }

  /** Waits for the buffer's own stream, and for the work that holds this stream back. */
  private compare(): void {
    const held = this.anyHeld()
    const [first, count] = this.anyBlocks(held)
    if (count > 0) this.compareBlocks(held, first, count)
  }

  /** Another stream reads the buffer, and only the buffer waits for it. */
  private useElsewhere(): void {
    const { buffer } = this.anyHeld()
    const stream = this.anyStream()
    signal(buffer.stream, stream)
    buffer.recordUse(stream)
    const bytes = Math.min(buffer.byteLength, this.scratch.byteLength)
    if (bytes === 0) return
    const from = buffer.ptr + buffer.byteLength - bytes
    this.device.context.activate().cuMemcpyDtoDAsync(this.scratch.ptr, from, bytes, stream.handle)
  }

  private openView(): void {
    const { buffer, views } = this.anyHeld()
    if (buffer.byteLength > 0) views.push(buffer.array(Uint8Array, 1 + this.random.below(buffer.byteLength)))
  }

  private closeView(): void {
    const { buffer, views } = this.anyHeld()
    if (views.length === 0) return
    const index = this.random.below(views.length)
    assert.deepEqual([views[index].ptr, views[index].readSync().length], [buffer.ptr, views[index].length])
    views.splice(index, 1)[0].free()
  }

  private hold(): void {
    const stream = this.anyStream()
    this.holds.push({ stream, release: this.device.hold(stream) })
  }

  private release(): void {
    const [hold] = this.holds.splice(this.random.below(this.holds.length), 1)
    if (hold !== undefined && !hold.stream.closed) hold.release()
  }

  private settle(): void {
    for (const { allocation } of [...this.freed, ...this.held.map(each => each.buffer)]) allocation.settle()
  }

  private wait(): void {
    const { buffer } = this.anyHeld()
    buffer.settleSync()
    assert.ok(!buffer.allocation.range.hasBeyond(buffer.byteLength))
  }

  /** Closes a stream that owns no buffer, with its work unfinished. */
  private replaceStream(): void {
    const index = this.random.below(STREAMS)
    if (this.held.some(({ buffer }) => buffer.stream === this.streams[index])) return
    const stream = this.streams[index]
    this.streams[index] = this.device.createStream()
    this.note('closed')
    stream.close()
  }

  /** Makes a driver call of the next step fail; 0 for none. */
  private refuse(nth = this.random.logUniform(1, 20)): void {
    this.refusing = nth > 0
    this.device.driver.clearFaults()
    if (this.refusing) this.device.driver.failCall({ call: '*', nth, code: [2, 999][this.random.below(2)] })
  }

  private compareBlocks(held: Held, first: number, count: number): void {
    const bytes = held.buffer.readSync(first * BLOCK, this.bytesOf(held, first, count))
    for (let block = first; block < first + count; block++) {
      if (held.stamps[block] === -1) continue
      const part = bytes.subarray((block - first) * BLOCK, (block - first + 1) * BLOCK)
      assert.ok(
        part.every(byte => byte === held.stamps[block]),
        `block ${block} is not ${held.stamps[block]}`,
      )
      this.note('compared')
    }
  }

  /** A few bytes less than `blocks` blocks, always the same number. */
  private lengthOf(blocks: number): number {
    return Math.max(0, blocks * BLOCK - (blocks % 3))
  }

  private bytesOf({ buffer }: Held, first: number, count: number): number {
    return Math.min(buffer.byteLength, (first + count) * BLOCK) - first * BLOCK
  }

  private anyBlocks({ stamps }: Held): [first: number, count: number] {
    const first = this.random.below(stamps.length)
    return [first, this.random.below(stamps.length - first + 1)]
  }

  private anyHeld(): Held {
    return this.held[this.random.below(this.held.length)]
  }

  private anyStream(): Stream {
    return this.streams[this.random.below(STREAMS)]
  }

  private finish(): void {
    this.refuse(0)
    for (const held of this.held) {
      this.compareBlocks(held, 0, held.stamps.length)
      held.buffer.free()
      this.freed.push(held.buffer)
    }
    for (const buffer of this.freed) {
      buffer.settleSync()
      assert.equal(buffer.mappedBytes, 0)
    }
    this.device.context.activate().cuCtxSynchronize()
    assert.equal(this.device.freeBytes(), CAPACITY - this.scratch.byteLength)
  }
}

describe(`random programs of growable buffers (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  for (const progress of ['eager', 'seeded'] as const) {
    for (const seed of seedsFrom(SEED, 3, STEPS / USUAL_STEPS, 1000)) {
      it(`contents survive with ${progress} work, seed ${seed}`, () => {
        const program = new Program(seed, progress)
        program.run(STEPS)
        const things = [
          ...Object.keys(STEP_WEIGHTS),
          'ranOut',
          'mapped',
          'tookBack',
          'keptByView',
          'pending',
          'refused',
        ]
        for (const thing of [...things, 'closed', 'compared']) assert.ok(program.taken.has(thing), `${thing} happened`)
      })
    }
  }

  it('a buffer that does not wait for pending work is caught by a fault', () => {
    for (let seed = SEED; seed < SEED + 5; seed++) {
      for (const progress of ['eager', 'seeded'] as const) {
        assert.throws(() => new Program(seed, progress, true).run(STEPS), { message: /CUDA_ERROR_ILLEGAL_ADDRESS/ })
      }
    }
  })
})
