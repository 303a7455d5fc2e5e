// A second opinion on when memory may be used again. The simulated driver knows the order of all submitted work,
// including the waits that the pool inserts, and its own answers to the host. The shadow remembers the work that used
// each freed span, and judges each grant of that memory. The grant is unsafe even if the work has run by now, unless
// the pool could know that.

import type { WorkPoint } from '../../driver/simulated/streams/stream-queue.js'
import type { Stream } from '../../order/stream.js'
import type { TestDevice } from '../pool-fixture.suite.js'

/** A piece of work on a stream. */
export type Use = WorkPoint

export interface Span {
  readonly ptr: number
  readonly end: number
}

interface Freed extends Span {
  readonly uses: readonly Use[]
}

/** A stream was given memory that unordered work of another stream uses. */
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
