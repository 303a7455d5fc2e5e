// Draws the operations of a program on a shared pool one by one, from the objects that exist.

import { MiB } from '../src/core/base/bytes.js'
import type { Random } from '../src/core/base/random.js'
import { Drawing, type Refusals } from './drawing.js'
import { CAPACITY_BYTES, drawLargeSize } from './settings.js'
import type { SharedOperation } from './shared-operation.js'
import type { SharedSystem } from './shared-system.js'

/** Weights of the operations. */
const WEIGHTS: Readonly<Record<SharedOperation['do'] | 'hand over' | 'pass on', number>> = {
  allocate: 60,
  free: 44,
  use: 26,
  announce: 4,
  transfer: 8,
  adopt: 9,
  record: 12,
  wait: 16,
  'pass event': 4,
  query: 5,
  synchronise: 1.5,
  hold: 18,
  release: 6,
  open: 7,
  'open own default': 1,
  close: 7,
  start: 1.5,
  end: 0.6,
  die: 0.6,
  'attach anew': 1,
  'process deferred': 4,
  trim: 2,
  limit: 2,
  reset: 4,
  sweep: 1,
  reclaim: 1.5,
  refuse: 5,
  'hand over': 10,
  'pass on': 8,
}
/** The same for programs on blocks in views. */
const VIEW_WEIGHTS = {
  ...WEIGHTS,
  allocate: 150,
  free: 110,
  hold: 40, // what has completed is not known then, and views must stay
  trim: 8,
  limit: 4,
  refuse: 10,
  die: 1.5,
  reclaim: 3,
}
type Verb = keyof typeof WEIGHTS

const EVENTS = 6
const MOST_THREADS = 4
/** what a pool of segments must be able to take */
const LEAST_LIMIT_BYTES = 2 * MiB
const MOST_HELD = [6, 20, 60] as const
const REFUSED: Refusals<Verb> = [
  ['cuEventCreate', ['process deferred', 'allocate', 'use']],
  ['cuEventRecord', ['record', 'use', 'free', 'allocate', 'process deferred']],
  ['cuEventQuery', ['process deferred', 'allocate', 'free']],
  ['cuEventSynchronize', ['allocate', 'adopt']],
  ['cuStreamWaitEvent', ['wait', 'use', 'allocate', 'free']],
  ['cuStreamQuery', ['query']],
  ['cuStreamSynchronize', ['synchronise']],
  ['cuStreamCreate', ['open']],
  ['cuMemCreate', ['allocate']],
  ['cuMemMap', ['allocate']],
  ['cuMemSetAccess', ['allocate']],
  ['cuMemUnmap', ['trim', 'allocate']],
  ['cuMemRelease', ['trim']],
  ['cuMemAlloc', ['allocate']],
  ['cuMemFree', ['trim', 'allocate']],
  ['cuMemHostRegister', ['allocate']],
  ['cuMemHostUnregister', ['trim', 'allocate']],
]

export class SharedGenerator extends Drawing<SharedOperation, Verb> {
  private readonly sizes: readonly number[]
  private readonly mostHeld: number

  constructor(
    random: Random,
    private readonly system: SharedSystem,
  ) {
    const { server, draw, maxPoolBytes } = system.common
    super(random, draw === drawLargeSize ? VIEW_WEIGHTS : WEIGHTS, verb => {
      return (verb !== 'reset' || server === null) && (verb !== 'limit' || maxPoolBytes > 0)
    })
    this.sizes = Array.from({ length: 1 + random.below(3) }, () => this.size())
    this.mostHeld = system.common.draw === drawLargeSize ? 16 : this.one(MOST_HELD)
    this.space()
    for (let count = random.below(MOST_THREADS - 1); count >= 0; count--) this.planned.push(this.draw('start'))
  }

  protected override draw(verb: Verb): SharedOperation {
    const { random, system } = this
    const thread = this.key(system.threads)
    switch (verb) {
      case 'start':
        if (system.threads.size >= MOST_THREADS) return this.draw('allocate')
        return { do: verb, thread: ++this.named, ownPool: random.below(2) === 0 }
      case 'end':
      case 'die':
      case 'attach anew':
        return { do: verb, thread }
      case 'open':
        if (system.streams.open.size >= system.mostStreams) return this.draw('close')
        return { do: verb, thread, stream: ++this.named }
      case 'open own default':
        return { do: verb, thread, stream: ++this.named }
      case 'close':
        return { do: verb, thread, stream: this.key(system.threads.get(thread)!.views) }
      case 'allocate':
        if (this.lacksSpacers(system.common.spacers, system.buffers.held)) return this.space()
        if (system.buffers.held.size >= this.mostHeld + system.common.spacers.length) return this.free()
        return this.allocate(
          thread,
          this.key(system.streams.open),
          random.below(4) > 0 ? this.one(this.sizes) : this.size(),
        )
      case 'free':
        return this.free()
      case 'use':
      case 'announce':
        return { do: verb, buffer: this.key(system.buffers.held), stream: this.key(system.streams.open) }
      case 'transfer':
        return { do: verb, buffer: this.unwanted(system.buffers.held) }
      case 'adopt':
        return { do: verb, thread, buffers: this.underWay() }
      case 'record':
        return { do: verb, thread, event: random.below(EVENTS), stream: this.key(system.streams.open) }
      case 'wait':
        return { do: verb, event: random.below(EVENTS), stream: this.key(system.streams.open) }
      case 'pass event':
        return { do: verb, event: random.below(EVENTS), thread }
      case 'query':
      case 'synchronise':
      case 'hold':
        return { do: verb, thread, stream: this.key(system.streams.open) }
      case 'release':
      case 'sweep':
        return { do: verb }
      case 'process deferred':
        return { do: verb, thread }
      case 'trim':
        return { do: verb, thread, bytes: random.below(2) * random.below(CAPACITY_BYTES / 4) }
      case 'limit':
        return this.limit(thread)
      case 'reset':
        return { do: verb, thread, stream: this.key(system.streams.open) }
      case 'reclaim':
        return { do: verb, thread, dead: random.below(this.named + 1) }
      case 'refuse':
        return this.refuse(REFUSED)
      case 'hand over':
        return this.handOver()
      case 'pass on':
        return this.passOn()
    }
  }

  private allocate(thread: number, stream: number, bytes: number): SharedOperation {
    const { random } = this
    const { mostAlignment } = this.system.common
    const alignment = random.below(12) === 0 ? 2 ** random.below(Math.log2(mostAlignment) + 1) : 0
    return { do: 'allocate', thread, buffer: ++this.named, stream, bytes, alignment, own: random.below(6) === 0 }
  }

  private limit(thread: number): SharedOperation {
    const range = this.system.common.maxPoolBytes - LEAST_LIMIT_BYTES
    const bytes = this.random.below(2) === 0 ? 0 : LEAST_LIMIT_BYTES + this.random.below(range)
    return { do: 'limit', thread, bytes }
  }

  private space(): SharedOperation {
    this.planSpacers(
      this.system.common.spacers,
      (buffer, bytes) => ({ do: 'allocate', thread: 0, buffer, stream: 0, bytes, alignment: 0, own: false }),
      buffer => ({ do: 'free', buffer, announce: true, byAddress: false }),
    )
    return { do: 'sweep' }
  }

  private free(): SharedOperation {
    return this.freeOf(this.unwanted(this.system.buffers.held), () => this.key(this.system.streams.open))
  }

  /**
   * A free, an order from its stream to another stream, and a request of that size there; often in the wrong order.
   */
  private handOver(): SharedOperation {
    const { random, system } = this
    const buffer = this.unwanted(system.buffers.held)
    const held = system.buffers.held.get(buffer)
    if (held === undefined || held.thread === null) return this.draw('adopt')
    const [thread, event, other] = [held.thread.name, random.below(EVENTS), this.key(system.streams.open)]
    const first = 'stream' in held.buffer ? system.streams.nameOf(held.buffer.stream) : 0
    const steps: SharedOperation[] = [
      { do: 'free', buffer, announce: true, byAddress: false },
      { do: 'record', thread, event, stream: first },
      { do: 'wait', event, stream: other },
      { ...this.allocate(thread, other, held.bytes), own: held.own } as SharedOperation,
    ]
    if (random.below(3) === 0) steps.splice(0, 2, steps[1], steps[0])
    this.planned.push(...steps.slice(1))
    return steps[0]
  }

  /** A buffer goes to another thread, which uses and frees it; then both threads ask for that size. */
  private passOn(): SharedOperation {
    const { random, system } = this
    const buffer = this.unwanted(system.buffers.held)
    const held = system.buffers.held.get(buffer)
    if (held === undefined || held.thread === null) return this.draw('adopt')
    const [from, to, stream] = [held.thread.name, this.key(system.threads), this.key(system.streams.open)]
    this.planned.push({ do: 'adopt', thread: to, buffers: [buffer] })
    if (random.below(2) === 0) this.planned.push({ do: 'hold', thread: to, stream })
    this.planned.push({ do: 'use', buffer, stream })
    this.planned.push({ do: 'free', buffer, announce: random.below(2) === 0, byAddress: random.below(4) === 0 })
    for (const thread of [from, to]) {
      this.planned.push({
        ...this.allocate(thread, this.key(system.streams.open), held.bytes),
        own: false,
      } as SharedOperation)
    }
    return { do: 'transfer', buffer }
  }

  private underWay(): number[] {
    const all = [...this.system.buffers.held].flatMap(([name, held]) => (held.sent === null ? [] : [name]))
    const start = this.random.below(all.length)
    return all.slice(start, start + 1 + this.random.below(3))
  }

  private size(): number {
    const { draw, mostBytes } = this.system.common
    return Math.min(draw(this.random), mostBytes)
  }
}
