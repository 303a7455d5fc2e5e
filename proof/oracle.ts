// The oracle decides which grants are safe, from the order of the driver's calls (call-order.ts). It notes all work
// with the memory that the work uses. It checks each grant, unmapping and free to the driver: all earlier uses of
// that memory must come before. Captured work may run at any time until its graph is destroyed. Host memory follows
// the host's own order.
//
// A grant is judged by the memory behind its addresses (mapped-memory.ts), and an unmapping by the addresses: work may
// use the same memory elsewhere.

import { MiB } from '../src/base/bytes.js'
import type { CallOrder, CapturedNode, CapturedWork, Point, Queue } from './call-order.js'
import { type Interval, type MappedMemory, type Mapping, overlap, without } from './mapped-memory.js'

/** Memory was handed out, or unmapped, while unordered work may still use it. */
export class WrongGrant extends Error {
  override name = 'WrongGrant'
}

/** The uses of some memory: by stream the last work, and by capture all work. */
interface Uses {
  readonly run: Map<Queue, Point>
  readonly captured: Map<CapturedWork, CapturedNode[]>
}

/** A block that was handed out: its first address, and its memory. */
interface Held {
  readonly ptr: number
  readonly memory: readonly Interval[]
  readonly uses: Uses
}

/** Memory of a freed block that was not handed out again. */
interface Freed extends Held {
  /** all work that the free's streams had before it, whether it uses the memory or not */
  readonly covered: readonly Point[]
  /** the pool of the block, and its size; the size is 0 once a part is gone */
  readonly pool: unknown
  readonly units: number
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

  constructor(
    private readonly order: CallOrder,
    private readonly mapped: MappedMemory,
  ) {}

  /** A pool hands memory to a stream; with null, to the host, which writes it at once. */
  grant(start: number, end: number, queue: Queue | null): void {
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
    const uses = newUses()
    let isTakeover = false
    this.take(memory, old => {
      this.refuseUnordered(old.uses, queue, () => `${where(start, end)} was given to ${nameOf(queue)}`)
      for (const [user, point] of old.uses.run) {
        isTakeover ||= user !== queue
        if (!this.order.comesBefore(point, null)) uses.run.set(user, point)
      }
      for (const [capture, nodes] of old.uses.captured) {
        if (!capture.isGone) for (const node of nodes) this.noteCaptured(uses, capture, node)
      }
    })
    if (isTakeover) this.takeovers++
    this.held.set(start, { ptr: start, memory, uses })
  }

  /** Some work uses memory. */
  used(start: number, end: number, work: Point): void {
    const memory = this.mapped.behind(start, end)
    for (const held of this.held.values()) if (overlap(held.memory, memory)) this.noteUse(held.uses, work)
    for (const mapping of this.mapped.mappingsIn(start, end)) {
      const uses = this.through.get(mapping) ?? newUses()
      this.through.set(mapping, uses)
      this.noteUse(uses, work)
    }
  }

  launched(capture: CapturedWork, launch: Point): void {
    for (const { run } of this.memoryOf.get(capture) ?? []) run.set(launch.queue, launch)
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
    const end = mapping.ptr + mapping.bytes
    for (const { ptr, memory } of this.held.values()) {
      const bytes = memory.reduce((sum, part) => sum + part.end - part.start, 0)
      if (ptr < end && mapping.ptr < ptr + bytes) throw new WrongGrant(`${where(mapping.ptr, end)} is in use`)
    }
    const uses = this.through.get(mapping)
    if (uses !== undefined) this.refuseUnordered(uses, null, () => `${where(mapping.ptr, end)} was unmapped`)
    this.through.delete(mapping)
  }

  /** The driver has memory back that was mapped. */
  gone(memory: Interval): void {
    this.refuseHeld([memory], memory.start, memory.end)
    this.take([memory], () => {})
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

  private noteUse(uses: Uses, work: Point): void {
    if (work.capture === null) uses.run.set(work.queue, work)
    else for (const node of work.tails) this.noteCaptured(uses, work.capture, node)
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
  private firstUnordered({ run, captured }: Uses, queue: Queue | null): string | null {
    for (const [user, point] of run) if (!this.order.comesBefore(point, queue)) return nameOf(user)
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

function newUses(): Uses {
  return { run: new Map(), captured: new Map() }
}

function nameOf(queue: Queue | null): string {
  return queue === null ? 'the host' : `stream ${queue.number}`
}

function where(start: number, end: number): string {
  return `${end - start} bytes at 0x${start.toString(16)}`
}
