// Who may use which memory, by the exact order of work that the simulated driver knows. For every freed span the work that
// used it is remembered, and each grant and each unmapping is judged: that work has merely run by now, without anybody
// knowing, is no excuse. Captured work may come at any time until its graph is closed, and is then its launches.

import type { SimulatedDriver } from '../src/driver/simulated/index.js'
import type { StreamCapture, WorkPoint } from '../src/driver/simulated/stream-queue.js'
import type { CachingPool } from '../src/pool/caching-pool.js'

/** Memory was handed out, or unmapped, while work that nothing puts before may use it. */
export class WrongGrant extends Error {
  override name = 'WrongGrant'
}

interface Span {
  readonly start: number
  readonly end: number
}

interface Freed extends Span {
  readonly uses: readonly WorkPoint[]
  /** all that was submitted before the free to the streams that it names, whether it uses the memory or not */
  readonly covered: readonly WorkPoint[]
  /** the pool that it was given back to, and the size of the block; the latter 0 once a part is gone */
  readonly pool: CachingPool
  readonly units: number
}

export class Judge {
  /** grants so far, and those of memory that another stream used last */
  grants = 0
  takeovers = 0
  private freed: Freed[] = []
  private readonly held = new Map<number, Span>()
  private readonly launches = new Map<StreamCapture, WorkPoint[]>()
  /** captures of which nothing will run any more */
  private readonly gone = new Set<StreamCapture>()
  /** a stream that waits for nothing: what comes before its work is what the host was told */
  private readonly witness: number

  constructor(private readonly driver: SimulatedDriver) {
    this.witness = driver.cuStreamCreate(1)
  }

  /** Memory is handed to the stream with this handle; returns the work that used it before. */
  grant(start: number, end: number, stream: number): WorkPoint[] {
    this.grants++
    this.refuseHeld(start, end)
    const own = this.driver.submitted(stream).queue
    const before: WorkPoint[] = []
    this.take(start, end, old => {
      for (const use of old.uses) {
        if (this.comesBefore(use, stream)) continue
        throw new WrongGrant(`${where(start, end)} was given to ${own.id} while work of ${use.queue.id} may use it`)
      }
      before.push(...old.uses)
    })
    if (before.some(use => use.queue !== own)) this.takeovers++
    this.held.set(start, { start, end })
    return before
  }

  /** Memory went back to a pool after these uses. */
  free(
    start: number,
    uses: readonly WorkPoint[],
    covered: readonly WorkPoint[],
    pool: CachingPool,
    units: number,
  ): void {
    const { end } = this.held.get(start)!
    this.held.delete(start)
    this.freed.push({ start, end, uses, covered, pool, units })
  }

  /** Memory was unmapped or given back to the device, which is in no stream's order. */
  leave(start: number, end: number): void {
    this.refuseHeld(start, end)
    this.take(start, end, old => {
      for (const use of old.uses) {
        if (this.comesBefore(use, this.witness)) continue
        throw new WrongGrant(`${where(start, end)} was unmapped while work of ${use.queue.id} may use it`)
      }
    })
  }

  /** A freed block of exactly this size in a pool, whose free comes before what the stream does next; undefined for none. */
  findReady(pool: CachingPool, units: number, stream: number): number | undefined {
    const isReady = (old: Freed) => old.units === units && old.pool === pool && this.isCovered(old, stream)
    return this.freed.find(isReady)?.start
  }

  /** Whether all that was freed between comes before what the stream does next. */
  isSafe(start: number, end: number, stream: number): boolean {
    return this.freed.every(old => old.end <= start || end <= old.start || this.isCovered(old, stream))
  }

  launched(capture: StreamCapture, point: WorkPoint): void {
    this.launches.set(capture, [...(this.launches.get(capture) ?? []), point])
  }

  /** The graph is closed, or never came to be. */
  dropped(capture: StreamCapture): void {
    this.gone.add(capture)
  }

  private comesBefore(work: WorkPoint, stream: number): boolean {
    const { capture } = work
    if (capture === null || !this.gone.has(capture)) return this.driver.happensBefore(work, stream)
    return (this.launches.get(capture) ?? []).every(launch => this.driver.happensBefore(launch, stream))
  }

  private refuseHeld(start: number, end: number): void {
    for (const held of this.held.values()) {
      if (held.start < end && start < held.end) throw new WrongGrant(`${where(start, end)} is in use`)
    }
  }

  private isCovered(old: Freed, stream: number): boolean {
    return old.covered.every(point => this.comesBefore(point, stream))
  }

  /** Takes out what lies between, after a look at all that overlaps it. */
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

function where(start: number, end: number): string {
  return `${end - start} bytes at 0x${start.toString(16)}`
}
