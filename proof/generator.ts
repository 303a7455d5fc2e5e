// Draws the operations of a program one by one, from the objects that exist.

import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Random } from '../src/core/base/random.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import type { GrowableBuffer, Stream } from '../src/index.js'
import { Drawing, type Refusals } from './drawing.js'
import { GROUP_REFUSED, GROUP_WEIGHTS, type GroupVerb } from './group-drawing.js'
import type { Operation, Reaction, StreamKind } from './operation.js'
import { CAPACITY_BYTES, drawLargeSize, type Settings } from './settings.js'
import { SLEEP_REFUSED, SLEEP_WEIGHTS, type SleepVerb } from './sleep-drawing.js'
import { MOST_GROWABLE_BYTES, type System } from './system.js'

/** Weights of the operations. */
const WEIGHTS: Readonly<
  Record<
    Operation['do'] | 'hand over' | 'fork' | 'nap and wake' | 'share a slab' | 'return and free' | 'capture in a group',
    number
  >
> = {
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
  ...SLEEP_WEIGHTS,
  ...GROUP_WEIGHTS,
}
/** The same for programs on blocks in views. */
const VIEW_WEIGHTS = { ...WEIGHTS, allocate: 220, free: 180, trim: 1, refuse: 12 }
/** The same for programs whose streams take small blocks from each other. */
const SLAB_WEIGHTS = { ...WEIGHTS, 'share a slab': 120, free: 80, trim: 6, sleep: 1, 'nap and wake': 1 }
/** The same for programs with graph groups. */
const GRAPH_WEIGHTS = { ...WEIGHTS, use: 50, hold: 8, capture: 3, launch: 60, 'close graph': 8, refuse: 12, free: 30 }
type Verb = keyof typeof WEIGHTS

const OF_CAPTURES: readonly Verb[] = ['capture', 'end capture', 'abort capture', 'launch', 'close graph', 'fork']
const MODES = ['global', 'threadLocal', 'relaxed'] as const
const KINDS = ['own', 'own', 'own', 'adopted', 'adopted blocking', 'per-thread default'] as const
const REACTIONS: readonly Reaction[] = ['none', 'none', 'none', 'throw', 'free', 'trim']
const MOST_SPILLABLE = 8
const MOST_BORROWED = 3
const MOST_GROUPS = 3
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
      weightsFor(system.settings),
      verb =>
        (system.settings.groups || !Object.hasOwn(GROUP_WEIGHTS, verb)) &&
        (system.settings.captures || !OF_CAPTURES.includes(verb)) &&
        (system.settings.sleeps !== null || !Object.hasOwn(SLEEP_WEIGHTS, verb)),
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
        if (system.settings.groups && random.below(2) === 0) return this.refuse(GROUP_REFUSED)
        return this.refuse(system.settings.sleeps !== null && random.below(2) === 0 ? SLEEP_REFUSED : REFUSED)
      case 'hand over':
        return this.handOver()
      case 'make group':
      case 'output':
      case 'capture in a group':
      case 'reserve group':
      case 'trim group':
      case 'close group':
        return this.drawOfGroup(verb)
      default:
        return this.drawOfSleep(verb)
    }
  }

  private drawOfGroup(verb: GroupVerb): Operation {
    const { random, system } = this
    const { open } = system.groups
    const group = this.key(open)
    switch (verb) {
      case 'make group':
        if (open.size >= MOST_GROUPS) return this.drawOfGroup('close group')
        return {
          do: verb,
          group: ++this.named,
          pool: this.pool(),
          refuses: random.below(4) === 0,
          poison: random.below(4) === 0,
        }
      case 'output':
        return this.output(this.stream())
      case 'capture in a group':
        return open.size === 0 ? this.drawOfGroup('make group') : this.captureIn(group)
      case 'reserve group':
        return { do: verb, group, bytes: random.below(4 * MiB) }
      case 'trim group':
        return { do: verb, group, bytes: 0 }
      case 'close group':
        return { do: verb, group }
    }
  }

  private output(stream: number): Operation & { do: 'output' } {
    const lifetime = this.random.below(2) === 0 ? 'shared' : 'own'
    return { do: 'output', buffer: ++this.named, stream, bytes: this.one(this.system.settings.sizes), lifetime }
  }

  /** A graph has scratch, perhaps on a second stream, an output, and often a buffer that is held; then it runs. */
  private captureIn(group: number): Operation {
    const { random, system } = this
    const { pool } = system.groups.open.get(group)!
    const [graph, stream, other, event] = [++this.named, this.uncaptured(), this.uncaptured(), random.below(EVENTS)]
    const scratch = (on: number): Operation[] => {
      const [buffer, bytes] = [++this.named, this.one(system.settings.sizes)]
      return [
        { do: 'allocate', buffer, pool, stream: on, bytes, alignment: 0, fill: true },
        { do: 'use', buffer, stream: on, write: false },
        ...(random.below(4) === 0 ? [] : [{ do: 'free', buffer, announce: false, byAddress: false } as const]),
      ]
    }
    const output = this.output(stream)
    const steps: Operation[] = [...scratch(stream), output]
    if (random.below(2) === 0) {
      steps.push({ do: 'record', event, stream }, { do: 'wait', event, stream: other }, ...scratch(other))
    }
    steps.push(...scratch(stream), { do: 'end capture', graph, join: true })
    this.planned.push(...steps)
    for (let left = random.below(3); left > 0; left--) {
      if (random.below(6) === 0) this.planned.push({ do: 'refuse', call: 'cuGraphLaunch', nth: 1 })
      this.planned.push({ do: 'launch', graph, stream: this.key(system.streams) })
      this.planned.push({ do: 'use', buffer: output.buffer, stream: this.key(system.streams), write: false })
    }
    return { do: 'capture', graph, stream, mode: this.one(MODES), group }
  }

  private drawOfSleep(verb: SleepVerb): Operation {
    const { random, system } = this
    const { buffers, borrowed } = system.spills!
    switch (verb) {
      case 'sleep':
        return this.sleep(this.memory(), random.below(2) === 0)
      case 'wake':
        return this.wake(
          this.memory(memory => memory.asleep),
          random.below(2) === 0,
        )
      case 'nap and wake':
        return this.nap()
      case 'return and free':
        return this.returnAndFree()
      case 'share a slab':
        return this.shareSlab()
      case 'turn':
        return { do: verb, count: 1 + random.below(6) }
      case 'settle':
      case 'idle':
      case 'close spillables':
        return { do: verb }
      case 'growable':
        return { do: verb, buffer: ++this.named, stream: this.stream(), bytes: this.growableBytes() }
      case 'resize':
        return { do: verb, buffer: this.key(this.growables()), bytes: this.growableBytes() }
      case 'spillable':
        if (buffers.size >= MOST_SPILLABLE) return this.drawOfSleep('free spillable')
        return {
          do: verb,
          spillable: ++this.named,
          stream: this.stream(),
          bytes: random.logUniform(4, random.below(2) === 0 ? 64 * KiB : 3 * MiB),
        }
      case 'borrow': {
        const use = random.below(2) === 0 && borrowed.size < MOST_BORROWED ? ++this.named : 0
        return { do: verb, spillable: this.key(buffers), use, stream: this.stream(), writes: random.below(2) === 0 }
      }
      case 'work':
        return { do: verb, use: this.key(borrowed), stream: this.stream(), write: random.below(3) === 0 }
      case 'give back': {
        const operation = { do: verb, use: this.key(borrowed) } as const
        return random.below(3) > 0 ? operation : { ...operation, stream: this.stream() }
      }
      case 'spill':
        return {
          do: verb,
          spillable: random.below(2) * this.key(buffers),
          stream: this.stream(),
          bytes: random.below(4 * MiB),
        }
      case 'free spillable':
        return { do: verb, spillable: this.key(buffers) }
      case 'limit':
        return { do: verb, pool: this.pool(), bytes: (2 + random.below(24)) * MiB }
      case 'reserve':
        return { do: verb, pool: this.pool(), bytes: random.below(12 * MiB) }
      case 'await room':
        return {
          do: verb,
          buffer: ++this.named,
          pool: this.pool(),
          stream: this.stream(),
          bytes: random.logUniform(4, 8 * MiB),
        }
      case 'abort':
        return { do: verb, buffer: this.key(system.waits) }
      case 'observe':
        return { do: verb, pool: this.pool(), throwsAt: random.below(6) }
      case 'stop observing':
        return { do: verb, pool: this.pool() }
    }
  }

  /**
   * What was announced before a sleep, and what is captured or closed while memory sleeps, meets the uses, frees and
   * requests right after the wake, whose copies may still be under way.
   */
  private nap(): Operation {
    const { random, system } = this
    const buffer = this.key(system.held)
    const held = system.held.get(buffer)
    if (held === undefined || held.pool === -1) return this.sleep(this.memory(), true)
    const sleep = this.sleep(held.pool, true)
    const wake: readonly Operation[] = [this.wake(held.pool, false), { do: 'turn', count: 1 }]
    const own = [...system.streams].find(([, one]) => one === held.buffer.stream)?.[0] ?? 0
    const [graph, other, stream] = [++this.named, ++this.named, this.uncaptured()]
    const free: Operation = { do: 'free', buffer, announce: false, byAddress: false }
    const request = { pool: held.pool, bytes: held.bytes, alignment: 0, fill: true }
    const again = (on: number): Operation => ({ do: 'allocate', buffer: ++this.named, stream: on, ...request })
    const use: Operation = { do: 'use', buffer, stream, write: random.below(2) === 0 }
    const plans: readonly (readonly Operation[])[] = [
      [{ do: 'announce', buffer, stream }, sleep, ...wake, { do: 'settle' }, use, free, again(own)],
      [sleep, { do: 'close', stream: own }, ...wake, free, { do: 'open', stream: other, kind: 'own' }, again(other)],
      [
        sleep,
        { do: 'capture', graph, stream, mode: this.one(MODES) },
        ...wake,
        { do: 'end capture', graph, join: true },
        use,
      ],
    ]
    const [first, ...rest] = plans[random.below(system.settings.captures ? 3 : 2)]
    this.planned.push(...rest)
    return first
  }

  /**
   * Small blocks of two streams come out of memory that a third has freed, perhaps with new memory behind it. Only the
   * first of them need wait for the third.
   */
  private shareSlab(): Operation {
    const { random } = this
    const [pool, giver, taker, other] = [this.pool(), this.uncaptured(), this.uncaptured(), this.uncaptured()]
    const [large, rest, event] = [++this.named, ++this.named, random.below(EVENTS)]
    const bytes = random.logUniform(1 * MiB, 4 * MiB)
    const allocate = (buffer: number, stream: number, size: number): Operation => {
      return { do: 'allocate', buffer, pool, stream, bytes: size, alignment: 0, fill: true }
    }
    const small = (stream: number) => allocate(++this.named, stream, random.logUniform(64 * KiB, 900 * KiB))
    this.planned.push({ do: 'free', buffer: large, announce: true, byAddress: false })
    if (random.below(2) === 0) {
      const keptBytes = bytes - random.logUniform(128 * KiB, 1 * MiB)
      this.planned.push(allocate(rest, giver, Math.max(keptBytes, 1)))
    }
    if (random.below(2) === 0) {
      this.planned.push({ do: 'record', event, stream: taker }, { do: 'wait', event, stream: other })
    }
    this.planned.push({ do: 'record', event, stream: giver }, { do: 'wait', event, stream: taker })
    this.planned.push(small(taker), small(other), random.below(3) === 0 ? { do: 'idle' } : small(other))
    return allocate(large, giver, bytes)
  }

  /** The host memory of a buffer is free while the copy that brings it back may run; the next spill wants as much. */
  private returnAndFree(): Operation {
    const [first, second] = [++this.named, ++this.named]
    const bytes = this.random.logUniform(this.random.below(2) === 0 ? 4 : 1 * MiB, 3 * MiB)
    const stream = () => this.uncaptured()
    const make = (spillable: number): Operation => ({ do: 'spillable', spillable, stream: stream(), bytes })
    const borrow = (spillable: number): Operation => ({
      do: 'borrow',
      spillable,
      use: 0,
      stream: stream(),
      writes: false,
    })
    const spill = (spillable: number): Operation => ({ do: 'spill', spillable, stream: stream(), bytes: 0 })
    this.planned.push(borrow(first), make(second), borrow(second), spill(first), borrow(first))
    this.planned.push({ do: 'free spillable', spillable: first }, spill(second), borrow(second))
    return make(first)
  }

  /** An open stream of one's own, which can be captured. */
  private uncaptured(): number {
    const isUsable = (stream: Stream) => stream.slot !== -1 && stream.handle !== 0
    return this.one([...this.system.streams].filter(([, one]) => isUsable(one)).map(([name]) => name)) ?? 0
  }

  private sleep(memory: number, settle: boolean): Operation {
    const { random } = this
    return {
      do: 'sleep',
      memory,
      keep: random.below(6) === 0 ? 'nothing' : 'host',
      into: random.below(2) === 0,
      unchanged: random.below(2) === 0,
      reaction: this.one(REACTIONS),
      hold: random.below(3) === 0,
      settle,
    }
  }

  private wake(memory: number, settle: boolean): Operation {
    const { random } = this
    return {
      do: 'wake',
      memory,
      keepCopy: random.below(3) === 0,
      wait: random.below(2) === 0 ? 'host' : 'streams',
      reaction: this.one(REACTIONS),
      look: random.below(3) === 0,
      hold: random.below(2) === 0,
      settle,
    }
  }

  /** A pool or a growable buffer, if possible one that is wanted. */
  private memory(isWanted: (memory: CachingPool | GrowableBuffer) => boolean = memory => !memory.asleep): number {
    const { pools } = this.system
    const growables = this.growables()
    const all = [...pools.keys(), ...[...growables.keys()].map(name => -name)]
    const wanted = all.filter(name => isWanted(name >= 0 ? pools[name] : growables.get(-name)!))
    return this.one(wanted.length > 0 && this.random.below(8) > 0 ? wanted : all)
  }

  private growables(): ReadonlyMap<number, GrowableBuffer> {
    const growables = new Map<number, GrowableBuffer>()
    for (const [name, { pool, buffer }] of this.system.held) {
      if (pool === -1) growables.set(name, buffer as GrowableBuffer)
    }
    return growables
  }

  private growableBytes(): number {
    return 1 + this.random.below(this.random.below(2) === 0 ? 300 * KiB : MOST_GROWABLE_BYTES)
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
    if (held === undefined || held.pool === -1) return this.draw('allocate')
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
    const begin: Operation & { do: 'capture' } = {
      do: 'capture',
      graph: ++this.named,
      stream,
      mode: this.one(MODES),
      ...(this.system.groups.open.size > 0 ? { group: this.key(this.system.groups.open) } : {}),
    }
    if (this.random.below(2) === 0) return begin
    this.planned.push(begin, { do: 'free', buffer, announce: true, byAddress: false })
    const held = this.system.held.get(buffer)
    if (held !== undefined && held.pool !== -1 && this.random.below(2) === 0) {
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

function weightsFor({ groups, sharesSlabs, draw }: Settings): Readonly<Record<Verb, number>> {
  if (groups) return GRAPH_WEIGHTS
  if (sharesSlabs) return SLAB_WEIGHTS
  return draw === drawLargeSize ? VIEW_WEIGHTS : WEIGHTS
}
