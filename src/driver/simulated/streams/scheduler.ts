// When submitted work runs. Each stream is a queue of positions 1, 2, 3 ... A position holds an operation with an effect
// (or none, like an event record), a wait for a position of another stream, or a held operation, which completes when
// it is released or when somebody waits for it. A held operation is no entry at all: it is a position without one, so
// that holding and releasing are a few additions, however many there are.
//
// A queue whose first entry may run is ready. 'eager' runs what is ready at once; 'seeded' runs some of it, in random
// order, at each driver call, and whoever waits runs only what the wait needs: work completes as late as CUDA allows.
// A queue that waits for another is listed there and looked at again when that one gets on, so nothing is ever scanned.

import type { Random } from '../../../base/random.js'
import { RESULT } from '../../constants.js'
import type { CapturedNode, StreamQueue } from './stream-queue.js'

/** An operation touched memory that it must not touch; kills the context of its stream. */
export class IllegalAddress extends Error {}

export class Scheduler {
  private readonly ready: StreamQueue[] = []

  /** without random numbers everything runs as soon as it may */
  constructor(private readonly random: Random | null) {}

  /** Submits an operation, or with `effect` null a mark; returns its position. On a captured stream it is recorded. */
  submit(queue: StreamQueue, effect: (() => void) | null): number {
    if (queue.capture !== null && effect !== null) {
      const node = { effect, after: queue.tails }
      queue.capture.nodes.push(node)
      queue.tails = [node]
      return queue.submitted
    }
    this.orderByDefaultStream(queue)
    return this.append(queue, effect, null, 0)
  }

  /** Submits the operations of a graph, in any order that their dependencies allow; returns the position of the last one. */
  submitGraph(queue: StreamQueue, nodes: readonly CapturedNode[]): number {
    const left = new Set(nodes)
    while (left.size > 0) {
      const next = [...left].filter(node => !node.after.some(earlier => left.has(earlier)))
      const node = next[this.random === null ? 0 : this.random.below(next.length)]
      left.delete(node)
      this.submit(queue, node.effect)
    }
    return this.submit(queue, null)
  }

  /** Lets what follows on `queue` wait for `position` of `other`. */
  wait(queue: StreamQueue, other: StreamQueue, position: number): void {
    this.orderByDefaultStream(queue)
    if (other.completed < position) this.append(queue, null, other, position)
  }

  hold(queue: StreamQueue): number {
    this.orderByDefaultStream(queue)
    return ++queue.submitted
  }

  release(queue: StreamQueue, position: number): void {
    if (position <= queue.released) return
    queue.released = position
    this.update(queue)
    if (this.random === null) this.runAll()
  }

  /** Lets some time pass. */
  progress(): void {
    const { ready, random } = this
    while (ready.length > 0 && random !== null && random.below(2) === 1)
      this.runFirst(ready[random.below(ready.length)])
  }

  /** Completes `queue` up to `position`, and what that depends on. */
  finish(queue: StreamQueue, position: number): void {
    this.complete(queue, position)
    if (this.random === null) this.runAll()
  }

  /** As `finish` of all that was submitted; the legacy stream stands for the streams that it is ordered with, too. */
  finishStream(queue: StreamQueue): void {
    if (queue.kind === 'legacy') this.orderByDefaultStream(queue)
    this.finish(queue, queue.submitted)
  }

  /** Whether all that was submitted has completed; for the legacy stream as in `finishStream`. */
  isIdle(queue: StreamQueue): boolean {
    if (queue.kind === 'legacy') this.orderByDefaultStream(queue)
    return queue.completed === queue.submitted
  }

  // The legacy default stream waits for all earlier work of the blocking streams, and they for its.
  private orderByDefaultStream(queue: StreamQueue): void {
    if (queue.kind === 'non-blocking') return
    const group = queue.group
    if (queue.kind === 'legacy') {
      if (!group.blockingSubmitted) return
      group.blockingSubmitted = false
      for (const other of group.queues) {
        if (other.kind === 'blocking' && other.completed < other.submitted) {
          this.append(queue, null, other, other.submitted)
        }
      }
    } else {
      group.blockingSubmitted = true
      const legacy = group.legacy
      if (queue.legacySeen === legacy.submitted) return
      queue.legacySeen = legacy.submitted
      if (legacy.completed < legacy.submitted) this.append(queue, null, legacy, legacy.submitted)
    }
  }

  private append(queue: StreamQueue, effect: (() => void) | null, other: StreamQueue | null, position: number): number {
    queue.push(effect, other, position)
    if (queue.count === 1) this.update(queue)
    if (this.random === null) this.runAll()
    return queue.submitted
  }

  /** Completes released positions before the first entry, and finds out whether that entry may run now. */
  private update(queue: StreamQueue): void {
    const before = queue.firstEntry - 1
    const reached = Math.min(before, queue.released)
    if (reached > queue.completed) this.advance(queue, reached)
    if (queue.count === 0 || queue.completed < before || queue.blocked || queue.readyIndex >= 0) return
    const other = queue.firstOther
    if (other !== null && other.completed < queue.firstOtherPosition) {
      queue.blocked = true
      other.waiters.push(queue)
    } else {
      queue.readyIndex = this.ready.push(queue) - 1
    }
  }

  private advance(queue: StreamQueue, position: number): void {
    queue.completed = position
    if (queue.destroyed && position === queue.submitted) queue.group.remove(queue)
    if (queue.waiters.length === 0) return
    for (const waiter of queue.waiters.splice(0)) {
      waiter.blocked = false
      this.update(waiter)
    }
  }

  private runAll(): void {
    while (this.ready.length > 0) this.runFirst(this.ready[this.ready.length - 1])
  }

  private runFirst(queue: StreamQueue): void {
    const last = this.ready.pop()!
    if (last !== queue) {
      this.ready[queue.readyIndex] = last
      last.readyIndex = queue.readyIndex
    }
    queue.readyIndex = -1
    const position = queue.firstEntry
    const effect = queue.shift()
    const group = queue.group
    if (effect !== null && group.fault === null) {
      try {
        effect()
      } catch (error) {
        const code =
          error instanceof IllegalAddress ? RESULT.CUDA_ERROR_ILLEGAL_ADDRESS : RESULT.CUDA_ERROR_LAUNCH_FAILED
        group.fault = { code, detail: error instanceof Error ? error.message : String(error) }
      }
    }
    this.advance(queue, position)
    this.update(queue)
  }

  // The recursion is at most as deep as there are streams: what the first entry of a queue waits for was submitted
  // before it, so it cannot come back to a queue that is already being completed here.
  private complete(queue: StreamQueue, position: number): void {
    while (queue.completed < position) {
      const first = queue.firstEntry
      if (first - 1 > queue.completed) {
        queue.released = Math.max(queue.released, Math.min(first - 1, position))
        this.update(queue)
        continue
      }
      if (queue.firstOther !== null) this.complete(queue.firstOther, queue.firstOtherPosition)
      this.runFirst(queue)
    }
  }
}
