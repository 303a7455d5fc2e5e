// The oracle decides which grants are safe, from the order of the driver's calls (call-order.ts). It notes all work
// with the memory that the work uses. It checks each grant, unmapping and free to the driver: all earlier uses of
// that memory must come before. Captured work may run at any time until its graph is destroyed. Host memory follows
// the host's own order.
//
// A grant is judged by the memory behind its addresses (mapped-memory.ts), and an unmapping by the addresses: work may
// use the same memory elsewhere.
//
// Captures of a group of graphs may be given the same memory. Then each launch must come after all work that used it.
// The file is long because each check looks at the same uses of memory.
//
// Memory that sleeps keeps its buffers and graphs, and gets other memory behind its addresses. A pool's own copies are
// work like any other, and the pool must order them: no later work may use their memory before them.

import { MiB } from '../src/core/base/bytes.js'
import type { CallOrder, CapturedNode, CapturedWork, Point, Queue } from './call-order.js'
import { type Interval, type MappedMemory, type Mapping, overlap, without } from './mapped-memory.js'

/** Memory was handed out, or unmapped, while unordered work may still use it. */
export class WrongGrant extends Error {
  override name = 'WrongGrant'
}

/** Work on memory is of the program, or a copy of the pool's own that reads or writes. */
export type Worker = 'program' | 'pool reads' | 'pool writes'

/** The uses of some memory: by stream the last work, and by capture all work. */
interface Uses {
  readonly run: Map<Queue, Point>
  /** the same of the pool's own copies, and of those that write */
  readonly copies: Map<Queue, Point>
  readonly writes: Map<Queue, Point>
  readonly captured: Map<CapturedWork, CapturedNode[]>
  /** the group of graphs whose memory it is; null for none. Then the launches among the last work count alone, too */
  readonly group: unknown
  readonly launches: Map<Queue, Point>
}

/** A block that was handed out: its addresses, and its memory. */
interface Held {
  readonly ptr: number
  readonly end: number
  /** the pool that it came from */
  readonly owner: unknown
  /** less than there are addresses while it sleeps */
  memory: readonly Interval[]
  readonly uses: Uses
  /** an output of a graph, which the library orders after launches */
  readonly isOutput: boolean
}

/** Memory of a freed block that was not handed out again. */
interface Freed extends Held {
  /** all work that the free's streams had before it, whether it uses the memory or not */
  readonly covered: readonly Point[]
  /** the pool of the block, and its size; the size is 0 once a part is gone */
  readonly pool: unknown
  readonly units: number
}

/** A capture of a group: the addresses that it was granted, and by stream the last launch of its graph. */
interface InGroup {
  readonly group: unknown
  readonly granted: Interval[]
  readonly launches: Map<Queue, Point>
}

export class Oracle {
  /** grants so far, and grants of memory that another stream used last */
  grants = 0
  takeovers = 0
  /** mapped blocks of more than 2 MiB, the least piece, and those of them that lay in views */
  large = 0
  inViews = 0
  private freed: Freed[] = []
  /** by address */
  private readonly held = new Map<number, Held>()
  /** the uses of memory through each mapping */
  private readonly through = new Map<Mapping, Uses>()
  /** by capture: the memory that its work uses */
  private readonly memoryOf = new Map<CapturedWork, Set<Uses>>()
  /** the graphs of groups */
  private readonly inGroups = new Map<CapturedWork, InGroup>()
  /** pools and buffers that sleep or are about to, and whether an address is theirs */
  private readonly asleep = new Map<unknown, (ptr: number) => boolean>()
  /** freed memory of graphs, and by address uses by graphs, while the memory sleeps */
  private dormant: Freed[] = []
  private readonly dormantUses = new Map<number, Uses>()

  constructor(
    private readonly order: CallOrder,
    private readonly mapped: MappedMemory,
  ) {}

  /** A pool hands memory to a stream; with null, to the host, which writes it at once. */
  grant(
    start: number,
    end: number,
    queue: Queue | null,
    owner: unknown = null,
    group: unknown = null,
    isOwn = false,
  ): void {
    this.grants++
    const memory = this.mapped.behind(start, end)
    memory.forEach((part, index) => {
      if (overlap([part], memory.slice(index + 1))) throw new WrongGrant(`${where(start, end)} has memory twice`)
    })
    this.refuseHeld(memory, start, end)
    const [mapping] = this.mapped.mappingsIn(start, end)
    if (mapping !== undefined && end - start > 2 * MiB) {
      this.large++
      if (!mapping.isHome) this.inViews++
    }
    const uses = newUses(group)
    let isTakeover = false
    this.take(memory, old => {
      const seen = group === null || isOwn || old.uses.group !== group ? old.uses : usesIn(old.uses, queue!.capture!)
      this.refuseUnordered(seen, queue, () => `${where(start, end)} was given to ${nameOf(queue)}`)
      for (const [user, point] of old.uses.launches) uses.launches.set(user, point)
      for (const [user, point] of old.uses.copies) uses.copies.set(user, point)
      for (const [user, point] of old.uses.writes) uses.writes.set(user, point)
      for (const [user, point] of old.uses.run) {
        isTakeover ||= user !== queue
        if (!this.order.comesBefore(point, null)) uses.run.set(user, point)
      }
      for (const [capture, nodes] of old.uses.captured) {
        // A block may have been a part of a larger one that other graphs of the group use elsewhere.
        const isElsewhere = this.inGroups.has(capture) && !this.isGranted(capture, start, end)
        if (!capture.isGone && !isElsewhere) for (const node of nodes) this.noteCaptured(uses, capture, node)
      }
    })
    if (isTakeover) this.takeovers++
    this.held.set(start, { ptr: start, end, owner, memory, uses, isOutput: isOwn })
    if (group === null) return
    const capture = queue!.capture!
    const graph: InGroup = this.inGroups.get(capture) ?? { group, granted: [], launches: new Map() }
    this.inGroups.set(capture, graph)
    graph.granted.push({ start, end })
  }

  /** The latest capture of a group has ended with this memory held: no other graph, and no launch, may use it. */
  pinned(start: number): void {
    const { end, uses } = this.held.get(start)!
    const others = [...this.inGroups].filter(([, { group }]) => group === uses.group).slice(0, -1)
    for (const [capture, { launches }] of others) {
      if (!this.isGranted(capture, start, end)) continue
      if (!capture.isGone) throw new WrongGrant(`${where(start, end)} stays held while a graph may use it`)
      this.refuseUnordered({ ...newUses(), run: launches }, null, () => `${where(start, end)} stays held`)
    }
  }

  /** A program has memory that no pool handed out, or now has another length of it. */
  adopt(start: number, end: number, owner: unknown): void {
    const uses = this.held.get(start)?.uses ?? newUses()
    this.held.set(start, {
      ptr: start,
      end,
      owner,
      memory: this.mapped.mappedBehind(start, end),
      uses,
      isOutput: false,
    })
  }

  /** Some work uses memory. */
  used(start: number, end: number, work: Point, worker: Worker = 'program'): void {
    let memory: readonly Interval[] = this.mapped.behind(start, end)
    for (const mapping of this.mapped.mappingsIn(start, end)) {
      const uses = this.through.get(mapping) ?? newUses()
      this.through.set(mapping, uses)
      this.noteUse(uses, work, 'program')
    }
    for (const held of this.held.values()) {
      if (!overlap(held.memory, memory)) continue
      this.refuseRace(held.uses, work, worker, () => where(held.ptr, held.end))
      if (held.isOutput) this.refuseEarly(held.uses.launches, work, () => where(held.ptr, held.end))
      this.noteUse(held.uses, work, worker)
      memory = without(memory, held.memory)
    }
    if (worker === 'program') this.usedInGroups(memory, work)
    else if (memory.length > 0) this.copied(memory, work, worker, start, end)
  }

  launched(capture: CapturedWork, launch: Point): void {
    this.inGroups.get(capture)?.launches.set(launch.queue, launch)
    for (const uses of this.memoryOf.get(capture) ?? []) {
      this.refuseRace(uses, launch, 'program', () => 'memory of a graph')
      if (uses.group !== null) {
        this.refuseEarly(uses.run, launch, () => 'memory of a group')
        uses.launches.set(launch.queue, launch)
      }
      uses.run.set(launch.queue, launch)
    }
  }

  /** A pool or a buffer may give the memory of its addresses back, and keep them. */
  fallsAsleep(owner: unknown, isOwn: (ptr: number) => boolean): void {
    this.asleep.set(owner, isOwn)
  }

  /** It has memory at all its addresses again. */
  isAwake(owner: unknown): void {
    this.asleep.delete(owner)
  }

  /** Memory goes back to its pool, after all work of these points. */
  free(start: number, covered: readonly Point[] = [], pool: unknown = null, units = 0): void {
    const held = this.held.get(start)
    if (held === undefined) throw new WrongGrant(`nothing was held at 0x${start.toString(16)}`)
    this.held.delete(start)
    this.freed.push({ ...held, covered, pool, units })
  }

  /** The pool has refused a free. */
  takeBack(start: number): void {
    const index = this.freed.findLastIndex(old => old.ptr === start)
    this.held.set(start, this.freed.splice(index, 1)[0])
  }

  /** A pool returns memory that is not mapped to the driver, which follows no stream's order. */
  leave(start: number, end: number): void {
    const memory = [{ start, end }]
    this.refuseHeld(memory, start, end)
    this.take(memory, old =>
      this.refuseUnordered(old.uses, null, () => `${where(start, end)} was given back to the driver`),
    )
  }

  /** A pool unmaps addresses, which follows no stream's order. */
  unmapped(mapping: Mapping): void {
    const { ptr } = mapping
    const end = ptr + mapping.bytes
    for (const held of this.held.values()) {
      if (held.ptr >= end || ptr >= held.end) continue
      if (!this.asleep.has(held.owner)) throw new WrongGrant(`${where(ptr, end)} is in use`)
      held.memory = without(held.memory, [mapping.handle])
    }
    const uses = this.through.get(mapping)
    this.through.delete(mapping)
    if (uses === undefined) return
    const isAsleep = this.isAsleepAt(ptr)
    const seen = isAsleep ? { ...uses, captured: new Map() } : uses // a graph cannot be launched while its memory sleeps
    this.refuseUnordered(seen, null, () => `${where(ptr, end)} was unmapped`)
    if (isAsleep && uses.captured.size > 0) this.dormantUses.set(ptr, uses)
  }

  /** Memory was mapped. */
  nowMapped(ptr: number, end: number): void {
    if (this.asleep.size === 0) return
    for (const held of this.held.values()) {
      if (held.ptr < end && ptr < held.end && this.asleep.has(held.owner)) {
        held.memory = this.mapped.mappedBehind(held.ptr, held.end)
      }
    }
    const uses = this.dormantUses.get(ptr)
    if (uses !== undefined) this.through.set(this.mapped.mappingsIn(ptr, end)[0], uses)
    this.dormantUses.delete(ptr)
    this.dormant = this.dormant.filter(old => {
      const memory = this.mapped.mappedBehind(old.ptr, old.end)
      if (bytesOf(memory) < old.end - old.ptr) return true
      this.freed.push({ ...old, memory, units: 0 })
      return false
    })
  }

  /** The driver has memory back that was mapped. */
  gone(memory: Interval): void {
    this.refuseHeld([memory], memory.start, memory.end)
    this.take([memory], old => {
      if (this.isAsleepAt(old.ptr) && hasGraph(old.uses) && !this.dormant.some(({ ptr }) => ptr === old.ptr)) {
        this.dormant.push(old)
      }
    })
  }

  /**
   * The addresses of freed blocks of exactly this size in a pool, with frees that come before the stream's next work.
   */
  readyAt(pool: unknown, units: number, queue: Queue): number[] {
    const isReady = (old: Freed) => old.units === units && old.pool === pool && this.isCovered(old, queue)
    return this.freed.filter(isReady).map(({ ptr }) => ptr)
  }

  /** Whether all frees within the span come before the stream's next work. */
  isSafe(start: number, end: number, queue: Queue): boolean {
    const memory = this.mapped.behind(start, end)
    return this.freed.every(old => !overlap(old.memory, memory) || this.isCovered(old, queue))
  }

  /** A shared output is scratch, which no program has. */
  private usedInGroups(memory: readonly Interval[], work: Point): void {
    for (const { uses, memory: part, ptr, end } of this.freed) {
      if (uses.group === null || !overlap(part, memory)) continue
      this.refuseEarly(uses.launches, work, () => where(ptr, end))
      this.noteUse(uses, work, 'program')
    }
  }

  /** A pool's own copy of memory that no program has. */
  private copied(memory: readonly Interval[], work: Point, worker: Worker, ptr: number, end: number): void {
    let rest = memory
    for (const old of this.freed) {
      if (!overlap(old.memory, rest)) continue
      this.noteUse(old.uses, work, worker)
      rest = without(rest, old.memory)
    }
    if (rest.length === 0) return
    const uses = newUses()
    this.noteUse(uses, work, worker)
    this.freed.push({ ptr, end, owner: null, memory: rest, uses, isOutput: false, covered: [], pool: null, units: 0 })
  }

  private isAsleepAt(ptr: number): boolean {
    for (const isOwn of this.asleep.values()) if (isOwn(ptr)) return true
    return false
  }

  private noteUse(uses: Uses, work: Point, worker: Worker): void {
    if (work.capture !== null) for (const node of work.tails) this.noteCaptured(uses, work.capture, node)
    else if (worker === 'program') uses.run.set(work.queue, work)
    else {
      uses.copies.set(work.queue, work)
      if (worker === 'pool writes') uses.writes.set(work.queue, work)
    }
  }

  /** A pool orders its copies, and the program need not know of them. */
  private refuseRace({ run, copies, writes }: Uses, work: Point, worker: Worker, what: () => string): void {
    if (work.capture !== null || (worker === 'program' && copies.size === 0)) return
    const earlier = [...(worker === 'pool reads' ? writes : copies), ...(worker === 'program' ? [] : run)]
    for (const [user, point] of earlier) {
      if (user === work.queue || this.order.comesBefore(point, work.queue)) continue
      const copy = worker === 'program' ? 'work of' : 'a copy on'
      throw new WrongGrant(`${copy} ${nameOf(work.queue)} uses ${what()} while work of ${nameOf(user)} may use it`)
    }
  }

  private isGranted(capture: CapturedWork, start: number, end: number): boolean {
    return overlap([{ start, end }], this.inGroups.get(capture)!.granted)
  }

  /** Launches of a group come after all that used its memory, and work with an output comes after launches. */
  private refuseEarly(earlier: ReadonlyMap<Queue, Point>, work: Point, what: () => string): void {
    if (work.capture !== null) return
    for (const [user, point] of earlier) {
      if (user === work.queue || this.order.comesBefore(point, work.queue)) continue
      throw new WrongGrant(`work of ${nameOf(work.queue)} uses ${what()} while work of ${nameOf(user)} may use it`)
    }
  }

  private noteCaptured(uses: Uses, capture: CapturedWork, node: CapturedNode): void {
    const nodes = uses.captured.get(capture)
    if (nodes === undefined) uses.captured.set(capture, [node])
    else if (!nodes.includes(node)) nodes.push(node)
    const memory = this.memoryOf.get(capture) ?? new Set()
    this.memoryOf.set(capture, memory.add(uses))
  }

  private refuseUnordered(uses: Uses, queue: Queue | null, what: () => string): void {
    const late = this.firstUnordered(uses, queue)
    if (late !== null) throw new WrongGrant(`${what()} while work of ${late} may use it`)
  }

  /** The first user of the memory not ordered before the next work of `queue`; null if all are. */
  private firstUnordered({ run, copies, captured }: Uses, queue: Queue | null): string | null {
    for (const [user, point] of run) if (!this.order.comesBefore(point, queue)) return nameOf(user)
    // Captured work runs at a launch, which must come after the copies.
    for (const [user, point] of queue !== null && queue.capture !== null ? [] : copies) {
      if (!this.order.comesBefore(point, queue)) return `a copy on ${nameOf(user)}`
    }
    for (const [capture, tails] of captured) {
      const [user] = capture.queues
      if (!this.order.comesBefore({ queue: user, position: 0, capture, tails }, queue)) return 'a graph'
    }
    return null
  }

  private refuseHeld(memory: readonly Interval[], start: number, end: number): void {
    for (const held of this.held.values()) {
      if (overlap(held.memory, memory)) throw new WrongGrant(`${where(start, end)} is in use`)
    }
  }

  private isCovered({ uses, covered }: Freed, queue: Queue): boolean {
    return covered.every(point => this.order.comesBefore(point, queue)) && this.firstUnordered(uses, queue) === null
  }

  /** Removes memory from the freed blocks, after a look at each that has some of it. */
  private take(memory: readonly Interval[], look: (old: Freed) => void): void {
    const left: Freed[] = []
    for (const old of this.freed) {
      if (!overlap(old.memory, memory)) {
        left.push(old)
        continue
      }
      look(old)
      const rest = without(old.memory, memory)
      if (rest.length > 0) left.push({ ...old, memory: rest, units: 0 })
    }
    this.freed = left
  }
}

function newUses(group: unknown = null): Uses {
  const [run, copies, writes, launches] = [0, 1, 2, 3].map(() => new Map<Queue, Point>())
  return { run, copies, writes, captured: new Map(), group, launches }
}

/** The uses of one capture. Others of its group may use the memory, since launches of the group never overlap. */
function usesIn(uses: Uses, capture: CapturedWork): Uses {
  return { ...uses, run: new Map(), captured: new Map([...uses.captured].filter(([one]) => one === capture)) }
}

/** Whether captured work that may still run uses the memory. */
function hasGraph({ captured }: Uses): boolean {
  return [...captured.keys()].some(capture => !capture.isGone)
}

function bytesOf(memory: readonly Interval[]): number {
  return memory.reduce((sum, { start, end }) => sum + end - start, 0)
}

function nameOf(queue: Queue | null): string {
  return queue === null ? 'the host' : `stream ${queue.number}`
}

function where(start: number, end: number): string {
  return `${end - start} bytes at 0x${start.toString(16)}`
}
