// A second opinion on when memory may be used again: the simulated driver knows the order of all that was submitted, the
// waits that the pool inserts included, and what it has told the host. For every freed span the work that used it is
// remembered, and each grant is judged: that work has merely run by now, without anybody knowing, is no excuse.

import type { WorkPoint } from '../../driver/simulated/streams/stream-queue.js'
import type { Stream } from '../../order/stream.js'
import type { TestDevice } from '../pool.fixture.js'

/** A piece of work on a stream. */
export type Use = WorkPoint

export interface Span {
  readonly ptr: number
  readonly end: number
}

interface Freed extends Span {
  readonly uses: readonly Use[]
}

/** A stream was given memory that work of another one uses which nothing puts before. */
export class UnsafeGrant extends Error {
  override name = 'UnsafeGrant'
}

export class ShadowOrder {
  /** grants of memory that another stream used last */
  takeovers = 0
  private freed: Freed[] = []

  constructor(private readonly device: TestDevice) {}

  /** Work has just been submitted to `stream`. */
  use(stream: Stream): Use {
    return this.device.driver.submitted(stream.handle)
  }

  /** A buffer was freed after these uses. */
  free(span: Span, uses: readonly Use[]): void {
    this.freed.push({ ...span, uses })
  }

  /** A buffer was handed to `stream`; throws when work that it is not ordered after may still use the memory. */
  grant(span: Span, stream: Stream): void {
    const { driver } = this.device
    const rest: Freed[] = []
    const own = driver.submitted(stream.handle).queue
    let isTakeover = false
    for (const old of this.freed) {
      if (old.end <= span.ptr || span.end <= old.ptr) {
        rest.push(old)
        continue
      }
      isTakeover ||= old.uses.some(use => use.queue !== own)
      const unordered = old.uses.find(use => !driver.happensBefore(use, stream.handle))
      if (unordered !== undefined) {
        throw new UnsafeGrant(
          `0x${span.ptr.toString(16)} was given to stream ${stream.handle} while work of stream ${unordered.queue.id} may use it`,
        )
      }
      if (old.ptr < span.ptr) rest.push({ ...old, end: span.ptr })
      if (span.end < old.end) rest.push({ ...old, ptr: span.end })
    }
    this.freed = rest
    if (isTakeover) this.takeovers++
  }
}
