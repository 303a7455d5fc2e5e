// Random programs over a few streams and events. The driver knows the true order. Whenever the clocks say that one
// thing comes before another, the driver must agree; and the clocks may miss hardly any order that there is.
//
// ORDER_FUZZ_SEED and ORDER_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Random } from '../base/random.js'
import { Context } from '../driver/context.js'
import type { WorkPoint } from '../driver/simulated/streams/stream-queue.js'
import { Clocks, MOST_STREAMS } from './clocks.js'
import { Event } from './event.js'
import { TestOrder } from './order.fixture.js'
import { Stream, streamOf } from './stream.js'

const SEED = Number(process.env['ORDER_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['ORDER_FUZZ_STEPS'] ?? 4000)
const POINTS = 24
const EVENTS = 4

/** Something freed on a stream, with the driver's and the clocks' view of it. */
interface Freed {
  readonly work: WorkPoint
  readonly slot: number
  readonly stamp: number
}

/** Calls during which other threads go on. */
const CALLS = [
  'cuEventRecord',
  'cuStreamWaitEvent',
  'cuEventQuery',
  'cuEventSynchronize',
  'cuStreamQuery',
  'cuStreamSynchronize',
  'cuCtxSynchronize',
] as const

/** An event, and the thread that holds it. */
interface Held {
  event: Event
  clocks: Clocks
}

class Program {
  ordered = 0
  recognised = 0
  private readonly random: Random
  private readonly order: TestOrder
  /** of each thread */
  private readonly clocks: Clocks[]
  private readonly streams: Stream[]
  private readonly events: Held[]
  /** all threads that may take a turn at a call of the driver; the calling thread may not */
  private others: Clocks[] = []
  private readonly freed: Freed[] = []
  private releases: { stream: Stream; release: () => void }[] = []

  /** `many` streams are open. */
  constructor(
    seed: number,
    progress: 'eager' | 'seeded',
    threads: number,
    private readonly many = 3,
  ) {
    this.random = new Random(seed)
    this.order = new TestOrder({ progress, seed })
    const { clocks, context, driver } = this.order
    this.clocks = [clocks]
    while (this.clocks.length < threads) this.clocks.push(new Clocks(Context.open(driver, 0), clocks.share()))
    this.streams = Array.from({ length: many }, () => Stream.create(this.any(this.clocks)))
    this.events = Array.from({ length: EVENTS * threads }, (_, index) => {
      const held = { event: new Event(context), clocks: this.clocks[index % threads] }
      held.event.record(this.view(clocks, this.streams[0]))
      if (held.clocks !== clocks) held.event = Event.adopt(held.clocks, held.event.transfer())
      return held
    })
    if (threads > 1) for (const call of CALLS) this.interrupt(call)
  }

  run(steps: number): void {
    for (let step = 0; step < steps; step++) {
      const dice = this.random.below(100)
      const clocks = this.any(this.clocks)
      if (dice < 97) this.others = this.clocks.filter(other => other !== clocks) // a close waits for others
      this.take(clocks, dice)
      this.others = []
      this.judge()
    }
  }

  /** Lets another thread act before and after a call of the driver. */
  private interrupt(call: (typeof CALLS)[number]): void {
    const { driver } = this.order
    const original = driver[call].bind(driver) as (...args: number[]) => boolean
    const turn = () => {
      const { others } = this
      if (others.length === 0 || this.random.below(3) > 0) return
      this.others = []
      this.take(this.any(others), this.random.below(97))
      this.judge()
      this.others = others
    }
    const interrupted = (...args: number[]) => {
      turn()
      const result = original(...args)
      turn()
      return result
    }
    Object.defineProperty(driver, call, { value: interrupted })
  }

  /** A thread's object for a stream. */
  private view(clocks: Clocks, stream: Stream): Stream {
    if (stream.clocks === clocks) return stream
    const known = streamOf(clocks, stream.slot)
    return known?.generation === stream.generation ? known : Stream.borrow(clocks, stream.share())!
  }

  private take(clocks: Clocks, dice: number): void {
    const stream = this.view(clocks, this.any(this.streams))
    const mine = this.events.filter(held => held.clocks === clocks)
    if (mine.length === 0) return
    const held = this.any(mine)
    const { event } = held
    if (this.clocks.length > 1 && dice % 10 === 0 && mine.length > 1) {
      held.clocks = this.any(this.clocks)
      held.event = Event.adopt(held.clocks, event.transfer())
      return
    }
    if (dice < 30) this.free(stream)
    else if (dice < 50) event.record(stream)
    else if (dice < 70) stream.wait(event)
    else if (dice < 76) this.releases.splice(0, 1)[0]?.release()
    else if (dice < 80) stream.query()
    else if (dice < 84) event.query()
    else if (dice < 86) event.synchronize()
    else if (dice < 87) stream.synchronize()
    else if (dice < 88) clocks.synchronize()
    else if (dice < 91) clocks.watcher.mark(stream.slot)
    else if (dice < 94) clocks.watcher.poll(stream.slot)
    else if (dice < 97) this.wait(clocks, stream)
    else this.replace()
  }

  private free(stream: Stream): void {
    const { clocks, driver } = this.order
    this.releases.push({ stream, release: this.order.hold(stream) })
    const freed = { work: driver.submitted(stream.handle), slot: stream.slot, stamp: clocks.marked[stream.slot] + 1 }
    if (this.freed.length < POINTS) this.freed.push(freed)
    else this.freed[this.random.below(POINTS)] = freed
  }

  /** The steps of a pool that gives a block to another stream. */
  private wait(clocks: Clocks, later: Stream): void {
    if (this.freed.length === 0) return
    const { slot, stamp } = this.any(this.freed)
    if (slot !== later.slot) clocks.order(later.slot, slot, stamp, this.random.below(4) === 0)
  }

  private replace(): void {
    const [closing] = this.streams.splice(this.random.below(this.streams.length), 1)
    this.releases = this.releases.filter(({ stream }) => stream.handle !== closing.handle)
    closing.close()
    while (this.streams.length < this.many) this.streams.push(Stream.create(this.any(this.clocks)))
  }

  private judge(): void {
    const { clocks, driver } = this.order
    const later = this.any(this.streams)
    for (const { work, slot, stamp } of this.freed) {
      const isKnown =
        slot === later.slot ||
        clocks.known[later.slot * MOST_STREAMS + slot] >= stamp ||
        clocks.completed[slot] >= stamp
      const isOrdered = driver.happensBefore(work, later.handle)
      assert.ok(isOrdered || !isKnown, `stamp ${stamp} of slot ${slot} is no earlier than slot ${later.slot}`)
      if (isOrdered) this.ordered++
      if (isKnown) this.recognised++
      assert.ok(clocks.waited[slot] <= clocks.completed[slot], 'who waits knows')
    }
  }

  private any<T>(list: readonly T[]): T {
    return list[this.random.below(list.length)]
  }
}

describe(`clocks in random programs (ORDER_FUZZ_SEED=${SEED} ORDER_FUZZ_STEPS=${STEPS})`, () => {
  for (const threads of [1, 2, 3]) {
    for (const progress of ['eager', 'seeded'] as const) {
      for (let seed = SEED; seed < SEED + 5; seed++) {
        it(`${threads} threads, ${progress} work, seed ${seed}`, t => {
          const program = new Program(seed, progress, threads)
          program.run(STEPS)
          t.diagnostic(`${program.recognised} of ${program.ordered} orderings recognised`)
          assert.ok(program.ordered > STEPS)
          assert.ok(program.recognised >= 0.99 * program.ordered, `${program.recognised} of ${program.ordered}`)
        })
      }
      it(`${threads} threads with 200 streams, ${progress} work, seed ${SEED}`, () => {
        const program = new Program(SEED, progress, threads, 200)
        program.run(STEPS / 4)
        assert.ok(program.recognised >= 0.9 * program.ordered, `${program.recognised} of ${program.ordered}`)
      })
    }
  }
})
