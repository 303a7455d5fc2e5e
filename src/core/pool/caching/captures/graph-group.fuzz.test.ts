// Random programs with a group of graphs, on a device that runs work in a random order. Each graph writes a value of
// its own to scratch and copies it from there, so that launches side by side would mix values. The contents of outputs,
// of held buffers and of copies are compared with those of a shadow. Some driver calls are refused. SEED replays one.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { PoolError } from '../../../base/errors.js'
import { Random } from '../../../base/random.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent, isFilled, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'
import { signal } from './graph-capture.fixture.js'
import { attempt, attemptCapture } from './graph-group.fixture.js'
import type { GraphGroup } from './graph-group.js'
import { GraphOutput } from './graph-output.js'

const CAPACITY = 64 * MiB
const STEPS = 70

/** Results of captures: outputs of both kinds, and buffers that are only held. */
const KINDS = ['shared', 'own', 'held'] as const

interface Subject {
  readonly graph: Graph
  readonly value: number
  readonly kind: (typeof KINDS)[number]
  readonly result: DeviceBuffer
  /** whether a launch has written the result */
  isWritten: boolean
  isOpen: boolean
  /** the stream of the latest launch */
  lastOn: Stream
}

interface Copy {
  readonly buffer: DeviceBuffer
  readonly value: number
}

class Program {
  readonly taken = new Map<string, number>()
  private readonly random: Random
  private readonly device: TestDevice
  private readonly pool: CachingPool
  private group: GraphGroup
  private readonly streams: readonly Stream[]
  private readonly subjects: Subject[] = []
  private readonly copies: Copy[] = []
  private readonly refuses: boolean
  private values = 0
  /** the subject of the latest launch; null if a launch was refused since, or the pool has slept */
  private latest: Subject | null = null

  constructor(
    seed: number,
    backing: 'virtual' | 'segments',
    private readonly refusesCalls: boolean,
  ) {
    this.random = new Random(seed)
    const { random } = this
    this.device = new TestDevice({ capacityBytes: CAPACITY, progress: 'seeded', seed })
    this.pool = this.device.createPool({ backing, maxPoolBytes: CAPACITY - 8 * MiB })
    this.refuses = random.below(4) === 0
    this.group = this.newGroup()
    this.streams = Array.from({ length: 1 + random.below(3) }, () => this.device.createStream())
  }

  async run(): Promise<void> {
    const steps = {
      capture: 5,
      launch: 14,
      copy: 10,
      signal: 3,
      free: 3,
      close: 3,
      check: 5,
      trim: 2,
      sleep: 1,
      renew: 1,
    }
    const choices = Object.entries(steps).flatMap(([name, weight]) => Array<string>(weight).fill(name))
    for (let step = 0; step < STEPS; step++) {
      const name = choices[this.random.below(choices.length)] as keyof typeof steps
      this.taken.set(name, (this.taken.get(name) ?? 0) + 1)
      const refused = this.refusesCalls && this.random.below(3) === 0
      if (refused) this.device.driver.failCall({ call: '*', nth: 1 + this.random.below(6), code: 999 })
      await this[name]()
      this.device.driver.clearFaults()
      for (const stream of this.streams) if (stream.capture !== null) stream.abortCapture()
      this.assertFresh()
      if (step % 10 === 0) this.pool.check()
    }
    this.finish()
  }

  private newGroup(): GraphGroup {
    const poison = this.random.below(3) === 0
    return this.pool.createGraphGroup({ whenUnordered: this.refuses ? 'refuse' : 'wait', poison })
  }

  private any<T>(list: readonly T[]): T {
    return list[this.random.below(list.length)]
  }

  private open(): Subject | undefined {
    return this.any(this.subjects.filter(({ isOpen }) => isOpen))
  }

  private capture(): void {
    const { random, group } = this
    const stream = this.any(this.streams)
    const kind = this.any(KINDS)
    const value = 1 + (this.values++ % 200)
    const bytes = 4 * KiB + random.below(300 * KiB)
    attemptCapture(this.device, stream, made => {
      const graph = group.capture(stream, () => {
        const result = kind === 'held' ? this.take(bytes, stream, made) : group.allocateOutput(bytes, stream, kind)
        if (kind !== 'held') made.push(result)
        this.captureScratch(stream, result, value, made)
        return result
      })
      this.subjects.push({ graph, value, kind, result: graph.result, isWritten: false, isOpen: true, lastOn: stream })
    })
  }

  private take(bytes: number, stream: Stream, made: DeviceBuffer[]): DeviceBuffer {
    const buffer = this.pool.allocate(bytes, stream)
    made.push(buffer)
    return buffer
  }

  /** Scratch goes through several buffers, some on a second stream, and then to the result. */
  private captureScratch(stream: Stream, result: DeviceBuffer, value: number, made: DeviceBuffer[]): void {
    const { random } = this
    const { byteLength } = result
    const other = this.any(this.streams)
    const forks = other !== stream && random.below(2) === 0
    let from = this.take(byteLength, stream, made)
    from.fill(value)
    if (forks) signal(stream, other)
    for (let count = random.below(4); count > 0; count--) {
      const on = forks && random.below(2) === 0 ? other : stream
      const to = this.take(byteLength + random.below(8) * 100 * KiB, on, made)
      if (on !== from.stream) signal(from.stream, on)
      to.copyFrom(from, 0, 0, byteLength)
      if (on !== from.stream) signal(on, from.stream)
      from.free()
      from = to
    }
    if (from.stream !== stream) signal(from.stream, stream)
    result.copyFrom(from, 0, 0, byteLength)
    from.free(stream)
    if (forks) signal(other, stream)
  }

  private launch(): void {
    const subject = this.open()
    if (subject === undefined) return
    const stream = this.any(this.streams)
    if (this.refuses || subject.kind === 'held') for (const other of this.streams) this.mayOrder(other, stream)
    const isLaunched = attempt(() => subject.graph.launch(stream))
    this.latest = isLaunched ? subject : null
    if (!isLaunched) return
    subject.isWritten = true
    subject.lastOn = stream
  }

  /** A held buffer is an ordinary one, so its uses are ordered here. */
  private mayOrder(earlier: Stream, later: Stream): void {
    if (earlier !== later) attempt(() => signal(earlier, later))
  }

  private copy(): void {
    const subject = this.any(this.subjects)
    if (subject === undefined || !subject.isWritten || subject.result.freed) return
    const stream = this.any(this.streams)
    const { result, value } = subject
    const ordered = this.refuses || subject.kind === 'held'
    if (ordered) for (const other of this.streams) this.mayOrder(other, stream)
    let buffer: DeviceBuffer | undefined
    let isCopied = false
    attempt(() => {
      const target = this.pool.allocate(result.byteLength, stream)
      buffer = target
      const source = result.addressFor('launch')
      result.noteUse(stream, 'launch')
      const { driver } = this.device
      stream.submit('copy', handle => driver.cuMemcpyDtoDAsync(target.ptr, source, result.byteLength, handle))
      isCopied = true
    })
    if (buffer !== undefined && isCopied) this.copies.push({ buffer, value })
    else attempt(() => buffer?.free())
    if (subject.kind === 'held') for (const other of this.streams) this.mayOrder(stream, other)
    if (this.copies.length > 12) this.compare(this.copies.shift()!)
  }

  private signal(): void {
    this.mayOrder(this.any(this.streams), this.any(this.streams))
  }

  private free(): void {
    const { result } = this.any(this.subjects) ?? {}
    if (result?.freed !== false) return
    const stream = this.any(this.streams)
    for (const other of this.streams) this.mayOrder(other, stream)
    attempt(() => result.free(stream))
  }

  private close(): void {
    const subject = this.open()
    if (subject === undefined) return
    attempt(() => subject.graph.close())
    subject.isOpen = false
    // Without open graphs the pool may give scratch back, and shared outputs with it.
    if (!this.subjects.some(({ isOpen }) => isOpen)) this.latest = null
  }

  /** Compares the result of a launch. */
  private check(): void {
    const subject = this.any(this.subjects)
    if (subject === undefined || subject.result.freed || !subject.isWritten) return
    const { result, kind } = subject
    if (kind === 'shared' && this.latest !== subject) return
    if (kind === 'held' || this.refuses) this.mayOrder(subject.lastOn, result.stream)
    attempt(() => {
      const bytes = result.readSync()
      assert.ok(isFilled(bytes, subject.value), `a ${kind} result of ${subject.value} has ${bytes[0]}`)
    })
  }

  private compare({ buffer, value }: Copy): void {
    const bytes = buffer.readSync()
    assert.ok(isFilled(bytes, value), `a copy of ${value} has ${bytes[0]}`)
    buffer.free()
  }

  private trim(): void {
    attempt(() => this.group.trim())
    attempt(() => this.pool.trimTo(0))
  }

  private async sleep(): Promise<void> {
    if (this.pool.snapshot().backing !== 'virtual') return
    try {
      await this.pool.sleep()
    } catch (error) {
      assert.ok(error instanceof Error)
    }
    this.device.driver.clearFaults()
    if (this.pool.asleep) {
      if (this.pool.stats().reservedBytes > 0) await this.pool.sleep()
      await this.pool.wake()
      this.latest = null
    }
  }

  /** Another group takes over as soon as the graphs of this one are closed. */
  private renew(): void {
    if (this.subjects.some(({ isOpen }) => isOpen)) return
    if (!attempt(() => this.group.close())) return
    const held = this.subjects.filter(({ kind, result }) => kind !== 'shared' && !result.freed)
    this.subjects.splice(0, this.subjects.length, ...held)
    this.latest = null
    this.device.driver.clearFaults()
    this.group = this.newGroup()
  }

  /** A shared output is valid if its graph was launched last. Each use of other shared outputs is refused. */
  private assertFresh(): void {
    for (const subject of this.subjects) {
      const { result, kind } = subject
      if (!(result instanceof GraphOutput) || result.freed) continue
      if (kind === 'own') assert.equal(result.overwritten, false)
      else if (this.latest !== null && this.latest !== subject) {
        assert.equal(result.overwritten, true)
        assert.throws(() => result.fill(0), PoolError)
      }
    }
    if (this.latest?.kind !== 'shared' || this.latest.result.freed) return
    assert.equal((this.latest.result as GraphOutput).overwritten, false)
  }

  private finish(): void {
    const { pool, group, device } = this
    for (const copy of this.copies.splice(0)) this.compare(copy)
    device.clocks.synchronize()
    assertConsistent(pool)
    for (const { graph } of this.subjects) graph.close()
    for (const { result } of this.subjects) if (!result.freed) result.free()
    device.clocks.synchronize()
    group.close()
    pool.trimTo(0)
    pool.check()
    assert.equal(pool.stats().reservedBytes, 0)
    pool.close()
    assert.equal(device.freeBytes(), CAPACITY)
  }
}

describe('random programs with groups of graphs', () => {
  const first = Number(process.env['SEED'] ?? 1)
  const count = process.env['SEED'] === undefined ? 60 : 1
  for (const backing of ['virtual', 'segments'] as const) {
    for (const refusesCalls of [false, true]) {
      it(`give right results: ${backing}${refusesCalls ? ', with refused calls' : ''}`, async () => {
        const taken = new Map<string, number>()
        for (let seed = first; seed < first + count; seed++) {
          try {
            const program = new Program(seed, backing, refusesCalls)
            await program.run()
            for (const [name, times] of program.taken) taken.set(name, (taken.get(name) ?? 0) + times)
          } catch (error) {
            const command = `SEED=${seed} node --test dist/src/core/pool/caching/captures/graph-group.fuzz.test.js`
            throw new Error(`replay: ${command}`, { cause: error })
          }
        }
        if (count > 1) assert.ok(taken.size === 10 && (taken.get('launch') ?? 0) > 500, `${[...taken]}`)
      })
    }
  }
})
