// A second opinion on when memory may be used again, made of vector clocks and raw driver events that the pool under
// test knows nothing of. It remembers for every freed span the work that used it, and judges each grant.

import type { Stream } from '../order/stream.js'
import type { TestDevice } from './pool-fixture.suite.js'

/** A piece of work on a stream. */
export interface Use {
  readonly stream: Stream
  /** counted on its stream */
  readonly sequence: number
  readonly event: number
  done: boolean
}

export interface Span {
  readonly ptr: number
  readonly end: number
}

interface Freed extends Span {
  readonly uses: readonly Use[]
}

/** A stream was given memory that unfinished work of another one uses. */
export class UnsafeGrant extends Error {
  override name = 'UnsafeGrant'
}

export class ShadowOrder {
  private readonly submitted = new Map<Stream, number>()
  /** by stream: the latest work of other streams that everything from now on comes after */
  private readonly after = new Map<Stream, Map<Stream, number>>()
  private freed: Freed[] = []

  constructor(private readonly device: TestDevice) {}

  /** Work has just been submitted to `stream`. */
  use(stream: Stream): Use {
    const driver = this.device.context.activate()
    const event = driver.cuEventCreate(2)
    driver.cuEventRecord(event, stream.handle)
    const sequence = (this.submitted.get(stream) ?? 0) + 1
    this.submitted.set(stream, sequence)
    return { stream, sequence, event, done: false }
  }

  /** `later` has just been made to wait for all that was submitted to `earlier`. */
  order(earlier: Stream, later: Stream): void {
    this.orderAfter(this.pointOf(earlier), later)
  }

  /** By stream: the latest work that anything submitted to `stream` from now on comes after. */
  pointOf(stream: Stream): ReadonlyMap<Stream, number> {
    return new Map(this.after.get(stream)).set(stream, this.submitted.get(stream) ?? 0)
  }

  /** `later` has just been made to wait for a point of another stream. */
  orderAfter(point: ReadonlyMap<Stream, number>, later: Stream): void {
    const known = this.after.get(later) ?? new Map<Stream, number>()
    this.after.set(later, known)
    for (const [stream, sequence] of point) known.set(stream, Math.max(sequence, known.get(stream) ?? 0))
  }

  /** A buffer was freed after these uses. */
  free(span: Span, uses: readonly Use[]): void {
    this.freed.push({ ...span, uses })
  }

  /** A buffer was handed to `stream`; throws when work that it is not ordered after may still use the memory. */
  grant(span: Span, stream: Stream): void {
    const rest: Freed[] = []
    for (const old of this.freed) {
      if (old.end <= span.ptr || span.end <= old.ptr) {
        rest.push(old)
        continue
      }
      const unfinished = old.uses.find(use => !this.isOrdered(use, stream) && !this.isDone(use))
      if (unfinished !== undefined) {
        throw new UnsafeGrant(
          `0x${span.ptr.toString(16)} was given to stream ${stream.handle} while work of stream ${unfinished.stream.handle} uses it`,
        )
      }
      if (old.ptr < span.ptr) rest.push({ ...old, end: span.ptr })
      if (span.end < old.end) rest.push({ ...old, ptr: span.end })
    }
    this.freed = rest
  }

  private isOrdered(use: Use, stream: Stream): boolean {
    return use.stream === stream || (this.after.get(stream)?.get(use.stream) ?? 0) >= use.sequence
  }

  private isDone(use: Use): boolean {
    use.done ||= this.device.context.activate().cuEventQuery(use.event)
    return use.done
  }
}
