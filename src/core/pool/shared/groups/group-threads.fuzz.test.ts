// Random programs of several threads with one group of graphs, on a device that runs work in a random order. Threads
// join, leave and die, also in a capture. The contents of outputs, held buffers and copies are compared with those of a
// shadow. Some driver calls are refused. The threads take turns, so that SEED replays a program.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import { DeviceBuffer } from '../../buffer.js'
import { signal } from '../../caching/captures/graph-capture.fixture.js'
import { attempt, attemptCapture } from '../../caching/captures/graph-group.fixture.js'
import { GraphOutput } from '../../caching/captures/graph-output.js'
import { isFilled, TestDevice } from '../../pool.fixture.js'
import type { TransferredBuffer } from '../../transferred-buffer.js'
import { type GroupThread, GroupThreads } from './group-threads.fixture.js'

const CAPACITY = 64 * MiB
const STEPS = 80
const KINDS = ['shared', 'own', 'held'] as const

interface Member {
  readonly thread: GroupThread
  readonly streams: readonly Stream[]
}

interface Subject {
  readonly member: Member
  readonly graph: Graph
  readonly value: number
  readonly kind: (typeof KINDS)[number]
  readonly result: DeviceBuffer
  isWritten: boolean
  isOpen: boolean
}

interface Copy {
  /** null once its thread has left or ended: the buffer is to be adopted then */
  readonly member: Member | null
  readonly buffer: DeviceBuffer | TransferredBuffer
  readonly value: number
}

class Program {
  readonly taken = new Map<string, number>()
  private readonly random: Random
  private readonly device: TestDevice
  private readonly threads: GroupThreads
  private readonly members: Member[] = []
  private subjects: Subject[] = []
  private copies: Copy[] = []
  private readonly releases: (() => void)[] = []
  private readonly refuses: boolean
  private values = 0
  /** the subject of the latest launch; null if a launch was refused since, or no graph is open */
  private latest: Subject | null = null

  constructor(
    seed: number,
    private readonly refusesCalls: boolean,
  ) {
    this.random = new Random(seed)
    const { random } = this
    this.refuses = random.below(4) === 0
    this.device = new TestDevice({ capacityBytes: CAPACITY, progress: 'seeded', seed })
    this.threads = new GroupThreads(
      { maxPoolBytes: CAPACITY - 8 * MiB },
      { whenUnordered: this.refuses ? 'refuse' : 'wait', poison: random.below(3) === 0 },
      this.device,
    )
    this.add(this.threads.maker)
    this.add(this.threads.join())
  }

  run(): void {
    const steps = {
      capture: 5,
      launch: 14,
      copy: 9,
      free: 3,
      close: 3,
      check: 5,
      trim: 2,
      join: 3,
      leave: 1,
      die: 1,
      dieInCapture: 1,
      sweep: 2,
      hold: 4,
      release: 4,
    }
    const choices = Object.entries(steps).flatMap(([name, weight]) => Array<string>(weight).fill(name))
    for (let step = 0; step < STEPS; step++) {
      const name = choices[this.random.below(choices.length)] as keyof typeof steps
      this.taken.set(name, (this.taken.get(name) ?? 0) + 1)
      const refused = this.refusesCalls && this.random.below(3) === 0
      if (refused) this.device.driver.failCall({ call: '*', nth: 1 + this.random.below(6), code: 999 })
      this[name]()
      this.device.driver.clearFaults()
      for (const { streams } of this.members) for (const one of streams) if (one.capture !== null) one.abortCapture()
      if (!this.subjects.some(({ isOpen }) => isOpen)) this.latest = null // scratch may have been given back
      this.assertFresh()
      if (step % 10 === 0) this.threads.maker.pool.check()
    }
    this.finish()
  }

  private add(thread: GroupThread): void {
    this.members.push({ thread, streams: [thread.stream, thread.createStream()] })
  }

  private any<T>(list: readonly T[]): T {
    return list[this.random.below(list.length)]
  }

  private capture(): void {
    const member = this.any(this.members)
    const { group, pool } = member.thread
    const [stream, kind] = [this.any(member.streams), this.any(KINDS)]
    const value = 1 + (this.values++ % 200)
    const bytes = 4 * KiB + this.random.below(300 * KiB)
    attemptCapture(this.device, stream, made => {
      const graph = group.capture(stream, () => {
        const result = kind === 'held' ? pool.allocate(bytes, stream) : group.allocateOutput(bytes, stream, kind)
        made.push(result)
        this.captureScratch(member, stream, result, value, made)
        return result
      })
      this.subjects.push({ member, graph, value, kind, result: graph.result, isWritten: false, isOpen: true })
    })
  }

  /** Scratch goes through several buffers on two streams side by side, and then to the two halves of the result. */
  private captureScratch(
    { thread, streams }: Member,
    stream: Stream,
    result: DeviceBuffer,
    value: number,
    made: DeviceBuffer[],
  ): void {
    const { byteLength } = result
    const take = (bytes: number, on: Stream) => {
      const buffer = thread.pool.allocate(bytes, on)
      made.push(buffer)
      return buffer
    }
    const other = this.any(streams)
    if (other !== stream) signal(stream, other)
    const ends = [stream, other].map(on => take(byteLength, on))
    for (const end of ends) end.fill(value)
    for (let count = this.random.below(6); count > 0; count--) {
      const half = this.random.below(2)
      const from = ends[half]
      const to = take(byteLength + this.random.below(8) * 100 * KiB, from.stream)
      to.copyFrom(from, 0, 0, byteLength)
      from.free()
      ends[half] = to
    }
    if (other !== stream) signal(other, stream)
    const middle = byteLength >> 1
    result.copyFrom(ends[0], 0, 0, middle)
    result.copyFrom(ends[1], middle, 0, byteLength - middle)
    for (const end of ends) end.free(stream)
  }

  private launch(): void {
    const subject = this.any(this.subjects.filter(({ isOpen }) => isOpen))
    if (subject === undefined) return
    const stream = this.any(subject.member.streams)
    this.order(subject, stream)
    const isLaunched = attempt(() => subject.graph.launch(stream))
    this.latest = isLaunched ? subject : null
    if (isLaunched) subject.isWritten = true
  }

  /** A held buffer is an ordinary one, so its uses are ordered here; and so are those of a group that refuses. */
  private order({ kind, member }: Subject, later: Stream): void {
    if (!this.refuses && kind !== 'held') return
    this.device.driver.clearFaults() // the order must be there
    if (this.refuses) this.orderAll()
    else orderWithin(member, later)
  }

  private orderAll(): void {
    for (const { streams } of this.members) for (const stream of streams) stream.synchronize()
  }

  private copy(): void {
    const subject = this.any(this.subjects)
    if (subject === undefined || !subject.isWritten || subject.result.freed) return
    const { result, value, member } = subject
    const stream = this.any(member.streams)
    this.order(subject, stream)
    let buffer: DeviceBuffer | undefined
    let isCopied = false
    attempt(() => {
      const target = member.thread.pool.allocate(result.byteLength, stream)
      buffer = target
      const source = result.addressFor('launch')
      result.noteUse(stream, 'launch')
      const { driver } = this.device
      stream.submit('copy', handle => driver.cuMemcpyDtoDAsync(target.ptr, source, result.byteLength, handle))
      isCopied = true
    })
    if (buffer !== undefined && isCopied) this.copies.push({ member, buffer, value })
    else attempt(() => buffer?.free())
    for (const later of member.streams) this.order(subject, later)
    if (this.copies.length > 12) this.compare(this.copies.shift()!)
  }

  /** Work of the maker's stream runs late, and so does all that comes after it. */
  private hold(): void {
    this.device.driver.clearFaults()
    this.releases.push(this.device.hold(this.any(this.members[0].streams)))
  }

  private release(): void {
    this.device.driver.clearFaults()
    this.releases.shift()?.()
  }

  private free(): void {
    const subject = this.any(this.subjects)
    if (subject === undefined || subject.result.freed) return
    const stream = this.any(subject.member.streams)
    this.device.driver.clearFaults()
    orderWithin(subject.member, stream)
    attempt(() => subject.result.free(stream))
  }

  private close(): void {
    const subject = this.any(this.subjects.filter(({ isOpen }) => isOpen))
    if (subject === undefined) return
    attempt(() => subject.graph.close())
    subject.isOpen = false
  }

  /** Compares the result of a launch. */
  private check(): void {
    const subject = this.any(this.subjects)
    if (subject === undefined || subject.result.freed || !subject.isWritten) return
    const { result, kind } = subject
    if (kind === 'shared' && this.latest !== subject) return
    this.order(subject, result.stream)
    attempt(() => {
      const bytes = result.readSync()
      assert.ok(isFilled(bytes, subject.value), `a ${kind} result of ${subject.value} has ${bytes[0]}`)
    })
  }

  private compare({ buffer: copy, value }: Copy): void {
    this.device.driver.clearFaults()
    const buffer = copy instanceof DeviceBuffer ? copy : this.threads.maker.pool.adopt(copy)
    const bytes = buffer.readSync()
    assert.ok(isFilled(bytes, value), `a copy of ${value} has ${bytes[0]}`)
    buffer.free()
  }

  private trim(): void {
    const { group, pool } = this.any(this.members).thread
    attempt(() => group.trim())
    attempt(() => pool.trimTo(0))
  }

  private join(): void {
    this.device.driver.clearFaults()
    if (this.members.length < 3) this.add(this.threads.join())
  }

  private leave(): void {
    const member = this.takeMember()
    if (member === null) return
    member.thread.pool.close()
    member.thread.clocks.close()
  }

  private die(): void {
    this.takeMember()?.thread.die()
  }

  private dieInCapture(): void {
    const member = this.any(this.members.slice(1))
    if (member === undefined) return
    const [stream] = member.streams
    attempt(() => {
      member.thread.group.beginCapture(stream)
      member.thread.pool.allocate(100 * KiB, stream)
      member.thread.group.allocateOutput(200 * KiB, stream, 'own')
    })
    this.device.driver.clearFaults()
    this.take(member)
    member.thread.die()
    this.sweep() // else the group stays as it is
  }

  /** The buffers of dead threads go back. */
  private sweep(): void {
    attempt(() => this.threads.sweep())
    const { pool } = this.threads.maker
    for (const { thread, alive } of pool.threads()) if (!alive) attempt(() => pool.reclaim(thread))
  }

  private takeMember(): Member | null {
    this.device.driver.clearFaults()
    const member = this.any(this.members.slice(1))
    return member === undefined ? null : this.take(member)
  }

  /** A thread is about to leave or to end. Its copies stay, while work may be under way. */
  private take(member: Member): Member {
    this.members.splice(this.members.indexOf(member), 1)
    for (const subject of this.subjects) if (subject.member === member) subject.isOpen = false
    this.subjects = this.subjects.filter(subject => subject.member !== member)
    this.copies = this.copies.map(copy =>
      copy.member === member ? { ...copy, member: null, buffer: (copy.buffer as DeviceBuffer).transfer() } : copy,
    )
    return member
  }

  /** A shared output is valid if its graph was launched last. Each use of other shared outputs is refused. */
  private assertFresh(): void {
    for (const subject of this.subjects) {
      const { result, kind } = subject
      if (!(result instanceof GraphOutput) || result.freed) continue
      if (kind === 'own') assert.equal(result.overwritten, false)
      else if (this.latest !== null && this.latest !== subject) assert.equal(result.overwritten, true)
    }
    const { latest } = this
    if (latest?.kind !== 'shared' || !this.subjects.includes(latest) || latest.result.freed) return
    assert.equal((latest.result as GraphOutput).overwritten, false)
  }

  private finish(): void {
    const { device, threads } = this
    const { group, pool } = threads.maker
    for (const release of this.releases) release()
    for (const copy of this.copies.splice(0)) this.compare(copy)
    pool.check()
    for (const { graph } of this.subjects) graph.close()
    for (const { result } of this.subjects) if (!result.freed) result.free()
    for (const { thread } of this.members.slice(1)) {
      thread.pool.close()
      thread.clocks.close()
    }
    this.sweep()
    device.clocks.synchronize()
    assert.equal(pool.stats().liveBuffers, 0)
    group.close()
    pool.trimTo(0)
    pool.check()
    assert.equal(pool.stats().reservedBytes, 0)
    pool.close()
    assert.equal(device.freeBytes(), CAPACITY)
  }
}

/** Work that the thread submits to a stream from now on comes after its work so far. */
function orderWithin({ streams }: Member, later: Stream): void {
  for (const earlier of streams) if (earlier !== later) signal(earlier, later)
}

describe('random programs of threads with a group of graphs', () => {
  const first = Number(process.env['SEED'] ?? 1)
  const count = process.env['SEED'] === undefined ? 60 : 1
  for (const refusesCalls of [false, true]) {
    it(`give right results${refusesCalls ? ', with refused calls' : ''}`, test => {
      test.diagnostic(`seeds ${first} to ${first + count - 1}`)
      const taken = new Map<string, number>()
      for (let seed = first; seed < first + count; seed++) {
        try {
          const program = new Program(seed, refusesCalls)
          program.run()
          for (const [name, times] of program.taken) taken.set(name, (taken.get(name) ?? 0) + times)
        } catch (error) {
          const command = `SEED=${seed} node --test dist/src/core/pool/shared/groups/group-threads.fuzz.test.js`
          throw new Error(`replay: ${command}`, { cause: error })
        }
      }
      if (count > 1) assert.ok(taken.size === 14 && (taken.get('launch') ?? 0) > 500, `${[...taken]}`)
    })
  }
})
