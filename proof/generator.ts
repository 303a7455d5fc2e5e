// Draws the operations of a program one by one, from the objects that exist.

import type { Random } from '../src/base/random.js'
import { Drawing, type Refusals } from './drawing.js'
import type { Operation, StreamKind } from './operation.js'
import { CAPACITY_BYTES, drawLargeSize } from './settings.js'
import type { System } from './system.js'

/** Weights of the operations. */
const WEIGHTS: Readonly<Record<Operation['do'] | 'hand over' | 'fork', number>> = {
  allocate: 52,
  free: 40,
  use: 18,
  announce: 4,
  record: 20,
  wait: 24,
  'query event': 4,
  'synchronise event': 1,
  query: 4,
  synchronise: 2,
  'synchronise device': 0.4,
  hold: 16,
  release: 5,
  open: 6,
  close: 5,
  replace: 2,
  'process deferred': 4,
  capture: 7,
  'end capture': 8,
  'abort capture': 0.5,
  launch: 14,
  'close graph': 5,
  trim: 1.5,
  refuse: 6,
  'hand over': 6,
  fork: 8,
}
/** The same for programs on blocks in views. */
const VIEW_WEIGHTS = { ...WEIGHTS, allocate: 220, free: 180, trim: 1, refuse: 12 }
type Verb = keyof typeof WEIGHTS

const OF_CAPTURES: readonly Verb[] = ['capture', 'end capture', 'abort capture', 'launch', 'close graph', 'fork']
const MODES = ['global', 'threadLocal', 'relaxed'] as const
const KINDS = ['own', 'own', 'own', 'adopted', 'adopted blocking', 'per-thread default'] as const
const EVENTS = 5
const REFUSED: Refusals<Verb> = [
  ['cuEventCreate', ['process deferred', 'allocate']],
  ['cuEventRecord', ['record', 'close', 'use', 'allocate']],
  ['cuEventQuery', ['query event', 'process deferred', 'allocate']],
  ['cuEventSynchronize', ['synchronise event', 'allocate']],
  ['cuStreamWaitEvent', ['wait', 'use', 'allocate']],
  ['cuStreamWaitEvent', ['wait']],
  ['cuStreamWaitEvent', ['wait']],
  ['cuStreamQuery', ['query']],
  ['cuStreamSynchronize', ['synchronise']],
  ['cuCtxSynchronize', ['synchronise device']],
  ['cuMemCreate', ['allocate']],
  ['cuMemMap', ['allocate']],
  ['cuMemSetAccess', ['allocate']],
  ['cuMemUnmap', ['trim', 'allocate']],
  ['cuMemRelease', ['trim']],
  ['cuMemAlloc', ['allocate']],
  ['cuMemFree', ['trim', 'allocate']],
  ['cuStreamBeginCapture', ['capture']],
  ['cuStreamEndCapture', ['end capture']],
  ['cuGraphInstantiate', ['end capture']],
  ['cuGraphLaunch', ['launch']],
]

export class Generator extends Drawing<Operation, Verb> {
  constructor(
    random: Random,
    private readonly system: System<unknown>,
  ) {
    super(
      random,
      system.settings.draw === drawLargeSize ? VIEW_WEIGHTS : WEIGHTS,
      verb => system.settings.captures || !OF_CAPTURES.includes(verb),
    )
    const { mostStreams } = system.settings
    this.space()
    for (let count = Math.max(random.below(mostStreams), random.below(mostStreams)); count > 0; count--)
      this.planned.push(this.open())
  }

  protected override draw(verb: Verb): Operation {
    const { random, system } = this
    switch (verb) {
      case 'open':
        return system.streams.size < system.settings.mostStreams ? this.open() : this.draw('close')
      case 'close':
        return { do: verb, stream: this.stream() }
      case 'replace':
        return { do: verb, stream: this.stream(), by: ++this.named }
      case 'allocate': {
        const { sizes, draw, mostHeld, spacers } = system.settings
        if (this.lacksSpacers(spacers, system.held)) return this.space()
        if (system.held.size >= mostHeld + spacers.length) return this.free()
        return {
          do: verb,
          buffer: ++this.named,
          pool: this.pool(),
          stream: this.stream(),
          bytes: random.below(4) > 0 ? this.one(sizes) : draw(random),
          alignment: random.below(12) === 0 ? 2 ** random.below(22) : 0,
          fill: random.below(8) > 0,
        }
      }
      case 'free':
        return this.free()
      case 'use':
        return { do: verb, buffer: this.buffer(), stream: this.stream(), write: random.below(3) === 0 }
      case 'announce':
        return { do: verb, buffer: this.buffer(), stream: this.stream() }
      case 'record':
      case 'wait':
        return { do: verb, event: random.below(EVENTS), stream: this.stream() }
      case 'query event':
      case 'synchronise event':
        return { do: verb, event: random.below(EVENTS) }
      case 'query':
      case 'synchronise':
      case 'hold':
        return { do: verb, stream: this.stream() }
      case 'synchronise device':
      case 'release':
        return { do: verb }
      case 'capture':
        return this.capture()
      case 'end capture':
        return { do: verb, graph: this.key(system.graphs.open), join: random.below(8) > 0 }
      case 'abort capture':
        return { do: verb, graph: this.key(system.graphs.open) }
      case 'launch':
        return { do: verb, graph: this.key(system.graphs.ready), stream: this.key(system.streams) }
      case 'close graph':
        return { do: verb, graph: this.key(system.graphs.ready) }
      case 'fork': {
        const [event, stream] = [random.below(EVENTS), this.stream()]
        this.planned.push({ do: 'wait', event, stream: this.stream() })
        return { do: 'record', event, stream }
      }
      case 'process deferred':
        return { do: verb, pool: this.pool() }
      case 'trim':
        return { do: verb, pool: this.pool(), bytes: random.below(2) * random.below(CAPACITY_BYTES / 4) }
      case 'refuse':
        return this.refuse(REFUSED)
      case 'hand over':
        return this.handOver()
    }
  }

  private open(): Operation {
    const isOfPeer = this.system.settings.peer && this.random.below(3) === 0
    const kind: StreamKind = isOfPeer ? 'of the peer' : this.one(KINDS)
    return { do: 'open', stream: ++this.named, kind }
  }

  /**
   * A buffer goes from its stream to a second and on to a third stream, which asks for that size. Often two steps
   * come in the wrong order, so that the third stream must not get the memory, or the driver refuses one of the
   * waits.
   */
  private handOver(): Operation {
    const { random, system } = this
    const buffer = this.unwanted(system.held)
    const held = system.held.get(buffer)
    if (held === undefined) return this.draw('allocate')
    const first = [...system.streams].find(([, stream]) => stream === held.buffer.stream)?.[0] ?? 0
    const [second, third, event, other] = [this.stream(), this.stream(), random.below(EVENTS), random.below(EVENTS)]
    const { pool, bytes } = held
    const steps: Operation[] = [
      { do: 'free', buffer, announce: true, byAddress: false },
      { do: 'record', event, stream: first },
      { do: 'wait', event, stream: second },
      { do: 'record', event: other, stream: second },
      { do: 'wait', event: other, stream: third },
      { do: 'allocate', buffer: ++this.named, pool, stream: third, bytes, alignment: 0, fill: true },
    ]
    const at = random.below(steps.length - 1)
    const twist = random.below(4)
    if (twist === 0) steps.splice(at, 2, steps[at + 1], steps[at])
    if (twist === 1) steps.splice(this.one([2, 4]), 0, { do: 'refuse', call: 'cuStreamWaitEvent', nth: 1 })
    this.planned.push(...steps.slice(1))
    return steps[0]
  }

  /** Often a capture frees a buffer of its stream; a request of that size follows when the graph is gone. */
  private capture(): Operation {
    const [buffer, stream] = [this.unwanted(this.system.held), this.stream()]
    const begin = { do: 'capture', graph: ++this.named, stream, mode: this.one(MODES) } as const
    if (this.random.below(2) === 0) return begin
    this.planned.push(begin, { do: 'free', buffer, announce: true, byAddress: false })
    const held = this.system.held.get(buffer)
    if (held !== undefined && this.random.below(2) === 0) {
      const { pool, bytes } = held
      this.planned.push(
        { do: 'end capture', graph: begin.graph, join: true },
        { do: 'close graph', graph: begin.graph },
        { do: 'allocate', buffer: ++this.named, pool, stream: this.stream(), bytes, alignment: 0, fill: true },
      )
    }
    return { do: 'use', buffer, stream, write: false }
  }

  private space(): Operation {
    const { spacers } = this.system.settings
    this.planSpacers(
      spacers,
      (buffer, bytes) => ({ do: 'allocate', buffer, pool: 0, stream: 0, bytes, alignment: 0, fill: true }),
      buffer => ({ do: 'free', buffer, announce: true, byAddress: false }),
    )
    return { do: 'synchronise device' }
  }

  private free(): Operation {
    return this.freeOf(this.unwanted(this.system.held), () => this.stream())
  }

  private pool(): number {
    return this.random.below(this.system.pools.length)
  }

  /** A stream; while there are captures, often a captured one. */
  private stream(): number {
    const { streams, graphs } = this.system
    if (graphs.open.size === 0 || this.random.below(2) === 0) return this.key(streams)
    return this.key(new Map([...streams].filter(([, stream]) => stream.capture !== null)))
  }

  private buffer(): number {
    return this.key(this.system.held)
  }
}
