// The oracle decides which grants are safe, from the order of the driver's calls (call-order.ts). It notes all work
// with the memory that the work uses. It checks each grant, unmapping and free to the driver: all earlier uses of
// that memory must come before. Captured work may run at any time until its graph is destroyed. Host memory follows
// the host's own order.

import type { CallOrder, CapturedNode, CapturedWork, Point, Queue } from './call-order.js'

/** Memory was handed out, or unmapped, while unordered work may still use it. */
export class WrongGrant extends Error {
  override name = 'WrongGrant'
}

/** The uses of some memory: by stream the last work, and by capture all work. */
interface Uses {
  readonly run: Map<Queue, Point>
  readonly captured: Map<CapturedWork, CapturedNode[]>
}

interface Span {
  readonly start: number
  readonly end: number
  readonly uses: Uses
}

interface Freed extends Span {
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
  private freed: Freed[] = []
  private readonly held = new Map<number, Span>()
  /** by capture: the memory that its work uses */
  private readonly memoryOf = new Map<CapturedWork, Set<Uses>>()

  constructor(private readonly order: CallOrder) {}

  /** A pool hands memory to a stream; with null, to the host, which writes it at once. */
  grant(start: number, end: number, queue: Queue | null): void {
    this.grants++
    this.refuseHeld(start, end)
    const uses: Uses = { run: new Map(), captured: new Map() }
    let isTakeover = false
    this.take(start, end, old => {
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
    this.held.set(start, { start, end, uses })
  }

  /** Some work uses memory. */
  used(start: number, end: number, work: Point): void {
    for (const held of this.held.values()) {
      if (held.end <= start || end <= held.start) continue
      if (work.capture === null) held.uses.run.set(work.queue, work)
      else for (const node of work.tails) this.noteCaptured(held.uses, work.capture, node)
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
    const index = this.freed.findIndex(old => old.start === start)
    this.held.set(start, this.freed.splice(index, 1)[0])
  }

  /** A pool unmaps memory or returns it to the driver, which follows no stream's order. */
  leave(start: number, end: number): void {
    this.refuseHeld(start, end)
    this.take(start, end, old =>
      this.refuseUnordered(old.uses, null, () => `${where(start, end)} was given back to the driver`),
    )
  }

  /**
   * The addresses of freed blocks of exactly this size in a pool, with frees that come before the stream's next work.
   */
  readyAt(pool: unknown, units: number, queue: Queue): number[] {
    const isReady = (old: Freed) => old.units === units && old.pool === pool && this.isCovered(old, queue)
    return this.freed.filter(isReady).map(({ start }) => start)
  }

  /** Whether all frees within the span come before the stream's next work. */
  isSafe(start: number, end: number, queue: Queue): boolean {
    return this.freed.every(old => old.end <= start || end <= old.start || this.isCovered(old, queue))
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

  private refuseHeld(start: number, end: number): void {
    for (const held of this.held.values()) {
      if (held.start < end && start < held.end) throw new WrongGrant(`${where(start, end)} is in use`)
    }
  }

  private isCovered({ uses, covered }: Freed, queue: Queue): boolean {
    return covered.every(point => this.order.comesBefore(point, queue)) && this.firstUnordered(uses, queue) === null
  }

  /** Removes a span from the freed memory, after a look at each overlapping part. */
  private take(start: number, end: number, look: (old: Freed) => void): void {
    let kept = 0
    const parts: Freed[] = []
    for (const old of this.freed) {
      if (old.end <= start || end <= old.start) {
        this.freed[kept++] = old
        continue
      }
      look(old)
      if (old.start < start) parts.push({ ...old, end: start, units: 0 })
      if (end < old.end) parts.push({ ...old, start: end, units: 0 })
    }
    this.freed.length = kept
    this.freed.push(...parts)
  }
}

function nameOf(queue: Queue | null): string {
  return queue === null ? 'the host' : `stream ${queue.number}`
}

function where(start: number, end: number): string {
  return `${end - start} bytes at 0x${start.toString(16)}`
}
