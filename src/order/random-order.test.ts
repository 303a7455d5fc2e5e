// Random programs over a few streams and events: whatever the clocks say comes before is asked of the driver, which knows,
// and hardly anything that does come before may be missed.
//
// ORDER_FUZZ_SEED and ORDER_FUZZ_STEPS replay and lengthen; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Random } from '../base/random.js'
import type { WorkPoint } from '../driver/simulated/stream-queue.js'
import { MOST_STREAMS } from './clocks.js'
import { Event } from './event.js'
import { TestOrder } from './order-fixture.suite.js'
import type { Stream } from './stream.js'

const SEED = Number(process.env['ORDER_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['ORDER_FUZZ_STEPS'] ?? 4000)
const POINTS = 24
const EVENTS = 4

/** Something freed on a stream, with what the driver and the clocks remember of it. */
interface Freed {
  readonly work: WorkPoint
  readonly slot: number
  readonly stamp: number
}

class Program {
  ordered = 0
  recognised = 0
  private readonly random: Random
  private readonly order: TestOrder
  private readonly streams: Stream[]
  private readonly events: Event[]
  private readonly freed: Freed[] = []
  private releases: { stream: Stream; release: () => void }[] = []

  constructor(seed: number, progress: 'eager' | 'seeded') {
    this.random = new Random(seed)
    this.order = new TestOrder({ progress, seed })
    this.streams = Array.from({ length: 3 }, () => this.order.createStream())
    this.events = Array.from({ length: EVENTS }, () => new Event(this.order.context))
    for (const event of this.events) event.record(this.streams[0])
  }

  run(steps: number): void {
    for (let step = 0; step < steps; step++) {
      this.take(this.random.below(100))
      this.judge()
    }
  }

  private take(dice: number): void {
    const { clocks } = this.order
    const stream = this.any(this.streams)
    const event = this.any(this.events)
    if (dice < 30) this.free(stream)
    else if (dice < 50) event.record(stream)
    else if (dice < 70) stream.wait(event)
    else if (dice < 76) this.releases.splice(0, 1)[0]?.release()
    else if (dice < 80) stream.query()
    else if (dice < 84) event.query()
    else if (dice < 86) event.synchronize()
    else if (dice < 87) stream.synchronize()
    else if (dice < 88) clocks.synchronize()
    else if (dice < 91) clocks.mark(stream.slot)
    else if (dice < 94) clocks.poll(stream.slot)
    else if (dice < 97) this.wait(stream)
    else this.replace()
  }

  private free(stream: Stream): void {
    const { clocks, driver } = this.order
    this.releases.push({ stream, release: this.order.hold(stream) })
    const freed = { work: driver.submitted(stream.handle), slot: stream.slot, stamp: clocks.marked[stream.slot] + 1 }
    if (this.freed.length < POINTS) this.freed.push(freed)
    else this.freed[this.random.below(POINTS)] = freed
  }

  /** What a pool does when it gives a block to another stream. */
  private wait(later: Stream): void {
    if (this.freed.length === 0) return
    const { slot, stamp } = this.any(this.freed)
    if (slot !== later.slot) this.order.clocks.order(later.slot, slot, stamp, this.random.below(4) === 0)
  }

  private replace(): void {
    const [closing] = this.streams.splice(this.random.below(this.streams.length), 1)
    this.releases = this.releases.filter(({ stream }) => stream !== closing)
    closing.close()
    while (this.streams.length < 3) this.streams.push(this.order.createStream())
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
  for (const progress of ['eager', 'seeded'] as const) {
    for (let seed = SEED; seed < SEED + 5; seed++) {
      it(`${progress} work, seed ${seed}`, t => {
        const program = new Program(seed, progress)
        program.run(STEPS)
        t.diagnostic(`${program.recognised} of ${program.ordered} orderings recognised`)
        assert.ok(program.ordered > STEPS)
        assert.ok(program.recognised >= 0.99 * program.ordered, `${program.recognised} of ${program.ordered}`)
      })
    }
  }
})
