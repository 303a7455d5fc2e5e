// The streams of a thread of the storm: its own, and borrowed ones. Other threads borrow its streams while it closes
// them with work pending, or dies. Each thread posts one of its own streams on a board.

import { PoolError } from '../src/core/base/errors.js'
import type { Random } from '../src/core/base/random.js'
import type { Device } from '../src/core/device/device.js'
import type { SharedStream, Stream } from '../src/core/order/stream.js'

const POSTS = 8
const MOST_STREAMS = 64
/**
 * Messages of calls on a stream that its thread has ended or is about to end. No regular expression: V8 ends the
 * process if it compiles one on a full stack.
 */
const ENDED = ['the stream is closed', 'is closed, here', 'was closed by the thread', 'was closed, ', 'being closed, ']

/** By post: generation and slot of a lent stream in one word, 0 for none. */
export function newPosts(): Int32Array {
  return new Int32Array(new SharedArrayBuffer(POSTS * 4))
}

/** The result of a call; null if its lent stream has ended. */
export function unlessEnded<R>(call: () => R): R | null {
  try {
    return call()
  } catch (error) {
    if (error instanceof PoolError && ENDED.some(part => error.message.includes(part))) return null
    throw error
  }
}

export class StormStreams {
  private own: Stream
  private borrowed: Stream | null = null
  private readonly gate: Stream

  constructor(
    private readonly device: Device,
    private readonly posts: Int32Array,
    /** a stream whose work the first thread holds back now and then */
    gate: SharedStream,
    private readonly random: Random,
  ) {
    this.gate = device.adoptStream(gate)
    this.own = device.createStream()
  }

  any(): Stream {
    const one = [this.device.defaultStream, this.own, this.borrowed][this.random.below(3)]
    return one ?? this.own
  }

  /** Uses a stream in some way. */
  step(): void {
    const { random, device } = this
    const dice = random.below(8)
    if (dice < 2) this.replace()
    else if (dice < 5) this.borrow()
    else if (dice === 5) unlessEnded(() => this.any().query())
    else if (dice === 6) unlessEnded(() => this.any().synchronize())
    else {
      using event = device.createEvent()
      unlessEnded(() => event.record(this.any())) ?? event.record(this.own)
      unlessEnded(() => this.any().wait(event))
    }
  }

  /** Ends the own stream, even with work pending, and lends a new one. */
  private replace(): void {
    const { device, gate, random, own } = this
    if (random.below(2) === 0) {
      using event = device.createEvent()
      event.record(gate)
      own.wait(event)
    }
    own.close()
    this.own = device.createStream()
    const { slot, generation } = this.own
    Atomics.store(this.posts, random.below(POSTS), generation * MOST_STREAMS + slot)
  }

  private borrow(): void {
    const word = Atomics.load(this.posts, this.random.below(POSTS))
    if (word === 0) return
    const slot = word % MOST_STREAMS
    const lent = { device: this.gate.share().device, slot, generation: (word - slot) / MOST_STREAMS }
    this.borrowed = unlessEnded(() => this.device.adoptStream(lent))
  }
}
