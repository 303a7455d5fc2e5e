// Random programs in which graphs of a group share the memory of three pools: the group's own, an arena and a block
// pool. Between groups the arena is an ordinary one, and blocks are used eagerly all the time. The device runs work in
// a random order. Each graph, and each eager use, writes a value of its own and copies it, so that uses side by side
// would mix values. Some driver calls are refused. SEED replays one. Then each driver call of one program is refused in
// turn.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import type { ArenaPool } from '../../arena/arena-pool.js'
import type { BlockPool } from '../../blocks/block-pool.js'
import type { DeviceBuffer } from '../../buffer.js'
import { isFilled, refuseEach, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'
import { signal } from './graph-capture.fixture.js'
import { attempt, attemptCapture } from './graph-group.fixture.js'
import type { GraphGroup } from './graph-group.js'
import type { GraphOutput } from './graph-output.js'

const CAPACITY = 64 * MiB
const BYTES = 64 * KiB
const BLOCKS = 4

interface Subject {
  readonly graph: Graph<GraphOutput>
  readonly value: number
  isWritten: boolean
}

class Program {
  readonly device: TestDevice
  readonly taken = new Map<string, number>()
  private readonly random: Random
  private readonly pool: CachingPool
  private readonly arena: ArenaPool
  private readonly blocks: BlockPool
  private readonly streams: readonly Stream[]
  private group: GraphGroup
  private isLent = false
  private readonly subjects: Subject[] = []
  private readonly copies: { buffer: DeviceBuffer; value: number }[] = []
  private values = 0

  constructor(
    seed: number,
    private readonly refusesCalls: boolean,
    private readonly steps = 60,
  ) {
    this.random = new Random(seed)
    const device = new TestDevice({ capacityBytes: CAPACITY, progress: 'seeded', seed })
    this.device = device
    this.pool = device.createPool({ maxPoolBytes: 24 * MiB })
    this.arena = device.createArenaPool({ bytes: 256 * KiB, maxPoolBytes: 4 * MiB })
    this.blocks = device.createBlockPool({ blockBytes: BYTES, count: 2, maxCount: BLOCKS })
    this.streams = Array.from({ length: 1 + this.random.below(3) }, () => device.createStream())
    this.group = this.newGroup()
  }

  run(): void {
    const steps = {
      capture: 5,
      launch: 12,
      copy: 8,
      close: 4,
      renew: 3,
      useArena: 6,
      useBlock: 6,
      resetArena: 2,
      hold: 4,
    }
    const choices = Object.entries(steps).flatMap(([name, weight]) => Array<string>(weight).fill(name))
    for (let step = 0; step < this.steps; step++) {
      const name = choices[this.random.below(choices.length)] as keyof typeof steps
      const refused = this.refusesCalls && this.random.below(3) === 0
      if (refused) this.device.driver.failCall({ call: '*', nth: 1 + this.random.below(6), code: 999 })
      if (this[name]()) this.taken.set(name, (this.taken.get(name) ?? 0) + 1)
      this.device.driver.clearFaults()
      for (const stream of this.streams) if (stream.capture !== null) stream.abortCapture()
      if (step % 10 === 0) for (const each of [this.pool, this.arena, this.blocks]) each.check()
    }
  }

  private any<T>(list: readonly T[]): T {
    return list[this.random.below(list.length)]
  }

  private nextValue(): number {
    return 1 + (this.values++ % 200)
  }

  private newGroup(): GraphGroup {
    this.isLent = this.random.below(3) > 0
    const poison = this.random.below(3) === 0
    return this.pool.createGraphGroup(this.isLent ? { arena: this.arena, poison } : { poison })
  }

  private capture(): boolean {
    const stream = this.any(this.streams)
    const value = this.nextValue()
    return attemptCapture(this.device, stream, made => {
      const graph = this.group.capture(stream, () => {
        const output = this.group.allocateOutput(BYTES, stream, 'own')
        made.push(output)
        this.captureScratch(stream, output, value, made)
        return output
      })
      this.subjects.push({ graph, value, isWritten: false })
    })
  }

  /** The value goes through buffers of several pools, some on a second stream. */
  private captureScratch(stream: Stream, output: DeviceBuffer, value: number, made: DeviceBuffer[]): void {
    const { random } = this
    const other = this.any(this.streams)
    const forks = other !== stream && random.below(2) === 0
    if (forks) signal(stream, other)
    let from = this.take(stream, made)
    from.fill(value)
    for (let count = random.below(4); count > 0; count--) {
      const on = forks && random.below(2) === 0 ? other : stream
      const to = this.take(on, made)
      if (on !== from.stream) signal(from.stream, on)
      to.copyFrom(from, 0, 0, BYTES)
      if (on !== from.stream) signal(on, from.stream)
      if (random.below(4) > 0) from.free()
      from = to
    }
    if (from.stream !== stream) signal(from.stream, stream)
    output.copyFrom(from, 0, 0, BYTES)
    if (forks) signal(other, stream)
    for (const buffer of made) if (buffer !== output && !buffer.freed) buffer.free(stream)
  }

  private take(stream: Stream, made: DeviceBuffer[]): DeviceBuffer {
    const sources = this.isLent ? [this.pool, this.arena, this.blocks] : [this.pool, this.blocks]
    const source = this.any(sources)
    const bytes = source === this.blocks ? BYTES : BYTES + this.random.below(4) * 100 * KiB
    const buffer = source.allocate(bytes, stream)
    made.push(buffer)
    return buffer
  }

  private launch(): boolean {
    const subject = this.any(this.subjects)
    if (subject === undefined) return false
    const isLaunched = attempt(() => subject.graph.launch(this.any(this.streams)))
    subject.isWritten ||= isLaunched
    return isLaunched
  }

  private copy(): boolean {
    const subject = this.any(this.subjects)
    if (subject === undefined || !subject.isWritten) return false
    return attempt(() => this.copyFrom(subject.graph.result, this.any(this.streams), subject.value))
  }

  /** A copy of contents that work on `stream`, or a launch, has written. */
  private copyFrom(source: DeviceBuffer, stream: Stream, value: number): void {
    const target = this.pool.allocate(BYTES, stream)
    try {
      const from = source.addressFor('launch')
      source.noteUse(stream, 'launch')
      stream.submit('copy', handle => this.device.driver.cuMemcpyDtoDAsync(target.ptr, from, BYTES, handle))
    } catch (error) {
      target.free()
      throw error
    }
    this.copies.push({ buffer: target, value })
    if (this.copies.length > 12) this.compare(this.copies.shift()!)
  }

  private compare({ buffer, value }: { buffer: DeviceBuffer; value: number }): void {
    this.device.driver.clearFaults()
    const bytes = buffer.readSync()
    assert.ok(isFilled(bytes, value), `a copy of ${value} has ${bytes[0]}`)
    buffer.free()
  }

  private close(): boolean {
    if (this.subjects.length === 0) return false
    const [{ graph }] = this.subjects.splice(this.random.below(this.subjects.length), 1)
    for (const end of [() => graph.close(), () => graph.result.free()]) {
      if (attempt(end)) continue
      this.device.driver.clearFaults()
      end()
    }
    return true
  }

  /** Another group takes over, with or without the arena. */
  private renew(): boolean {
    while (this.subjects.length > 0) this.close()
    attempt(() => this.group.close())
    if (!this.group.closed) return false // otherwise what is left goes back later
    this.isLent = false
    for (let count = this.random.below(6); count > 0; count--)
      this[this.any(['useArena', 'resetArena', 'useBlock', 'hold'] as const)]()
    this.device.driver.clearFaults()
    this.group = this.newGroup()
    return true
  }

  private useArena(): boolean {
    return !this.isLent && this.useEagerly(this.arena)
  }

  private resetArena(): boolean {
    const { arena, isLent } = this
    const isReset = attempt(() => arena.reset(this.any(this.streams)))
    assert.ok(!isReset || !isLent)
    return isReset
  }

  /** A stream runs nothing more until the host waits for it. */
  private hold(): boolean {
    return attempt(() => this.device.hold(this.any(this.streams)))
  }

  private useBlock(): boolean {
    return this.useEagerly(this.blocks)
  }

  private useEagerly(source: ArenaPool | BlockPool): boolean {
    const stream = this.any(this.streams)
    const value = this.nextValue()
    const buffers: DeviceBuffer[] = []
    const isUsed = attempt(() => {
      for (let count = 1 + this.random.below(3); count > 0; count--) {
        const buffer = source.allocate(BYTES, stream)
        buffers.push(buffer)
        buffer.fill(value)
        this.copyFrom(buffer, stream, value)
      }
    })
    this.device.driver.clearFaults()
    for (const buffer of buffers) buffer.free()
    return isUsed
  }

  /** Everything comes back. */
  finish(): void {
    const { pool, arena, blocks, device } = this
    for (const copy of this.copies.splice(0)) this.compare(copy)
    while (this.subjects.length > 0) this.close()
    this.group.close()
    arena.reset()
    assert.equal(arena.stats().liveBytes, 0)
    const all = Array.from({ length: BLOCKS }, () => blocks.allocate())
    for (const block of all) block.free()
    device.clocks.synchronize()
    pool.trimTo(0)
    for (const each of [pool, arena, blocks]) each.check()
    assert.deepEqual([pool.stats().reservedBytes, pool.stats().liveBuffers], [0, 0])
    for (const each of [pool, arena, blocks]) each.close()
    assert.equal(device.freeBytes(), CAPACITY)
  }
}

describe('random programs with groups over several pools', () => {
  const first = Number(process.env['SEED'] ?? 1)
  const count = process.env['SEED'] === undefined ? 60 : 1
  for (const refusesCalls of [false, true]) {
    it(`give right results${refusesCalls ? ', with refused calls' : ''}`, () => {
      const taken = new Map<string, number>()
      for (let seed = first; seed < first + count; seed++) {
        try {
          const program = new Program(seed, refusesCalls)
          program.run()
          program.finish()
          for (const [name, times] of program.taken) taken.set(name, (taken.get(name) ?? 0) + times)
        } catch (error) {
          const command = `SEED=${seed} node --test dist/src/core/pool/caching/captures/group-pools.fuzz.test.js`
          throw new Error(`replay: ${command}`, { cause: error })
        }
      }
      if (count > 1) assert.ok(taken.size === 9 && [...taken.values()].every(times => times > 20), `${[...taken]}`)
    })
  }

  it('lose nothing if each driver call in turn is refused', async test => {
    const calls = await refuseEach(
      () => new Program(first, false, 25),
      program => program.run(),
      program => program.finish(),
    )
    test.diagnostic(`seed ${first}, ${calls} calls`)
    assert.ok(calls > 60)
  })
})
