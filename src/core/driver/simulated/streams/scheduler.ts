// Runs submitted work. Each stream is a queue of positions 1, 2, 3 ... A position is an operation with an effect, a
// mark without effect such as an event record, a wait for a position of another stream, or a held operation. A held
// operation completes when it is released, or when the host waits for it. It has no entry in the queue, so holding
// and releasing cost a few additions, however many there are.
//
// A queue is ready if its first entry may run. 'eager' runs ready work at once. 'seeded' runs some of it at each
// driver call, in random order, and a wait runs only the work that it needs: work completes as late as CUDA allows. A
// queue that waits for another queue is in that queue's list of waiters, and is checked again when that queue
// advances. So no list of all queues is ever scanned.
//
// Work may also wait for a gate (gate.ts). Gates are asked at each driver call. A wait of the host for work behind a
// closed gate runs all other work, and asks again about every millisecond, since another process may open the gate.

import type { Random } from '../../../base/random.js'
import { thrownText } from '../../../base/thrown.js'
import { RESULT } from '../../constants.js'
import { Gate, type GateCondition, type GatedStep } from './gate.js'
import type { CapturedNode, StreamQueue } from './stream-queue.js'

const ASK_AGAIN_MS = 1

/** An operation accessed memory without permission, which ends the context of its stream. */
export class IllegalAddress extends Error {}

/** The host waits for work that can never run. */
export class EndlessWait extends Error {
  override name = 'EndlessWait'
}

/** The ready queues, and the rules that run their work. */
export class Scheduler {
  private readonly ready: StreamQueue[] = []
  private readonly closedGates = new Set<Gate>()
  /** whether work runs now, such as a kernel of the program, which cannot call the driver */
  isRunning = false

  /** null runs all work as soon as it may run */
  constructor(private readonly random: Random | null) {}

  /** Submits an operation, or a mark without effect; returns its position. A captured stream records it. */
  submit(queue: StreamQueue, effect: (() => void) | null): number {
    if (queue.capture !== null && effect !== null) {
      queue.record({ submit: launched => this.submit(launched, effect), after: queue.tails })
      return queue.submitted
    }
    this.orderByDefaultStream(queue)
    return this.append(queue, effect, null, 0)
  }

  /** Submits steps, which `begin` makes. A captured stream records `begin`, for each launch of the graph. */
  submitSteps(queue: StreamQueue, begin: (queue: StreamQueue) => readonly GatedStep[]): void {
    if (queue.capture !== null) {
      queue.record({ submit: launched => this.submitSteps(launched, begin), after: queue.tails })
    } else {
      for (const { gate, effect } of begin(queue)) {
        this.waitForGate(queue, gate)
        this.submit(queue, effect)
      }
    }
  }

  /** Submits the operations of a graph, in any order that their dependencies allow; returns the last position. */
  submitGraph(queue: StreamQueue, nodes: readonly CapturedNode[]): number {
    const left = new Set(nodes)
    while (left.size > 0) {
      const next = [...left].filter(node => !node.after.some(earlier => left.has(earlier)))
      const node = next[this.random === null ? 0 : this.random.below(next.length)]
      left.delete(node)
      node.submit(queue)
    }
    return this.submit(queue, null)
  }

  /** Makes later work of `queue` wait for `position` of `other`. */
  wait(queue: StreamQueue, other: StreamQueue, position: number): void {
    this.orderByDefaultStream(queue)
    if (other.completed < position) this.append(queue, null, other, position)
  }

  /** Submits a held operation; returns its position. */
  hold(queue: StreamQueue): number {
    this.orderByDefaultStream(queue)
    return ++queue.submitted
  }

  /** Lets held operations of `queue` up to `position` complete. */
  release(queue: StreamQueue, position: number): void {
    if (position <= queue.released) return
    queue.released = position
    this.update(queue)
    if (this.random === null) this.runAll()
  }

  /** Runs some of the ready work, a random amount; called at each driver call. */
  progress(): void {
    const { ready, random } = this
    while (this.closedGates.size > 0 && this.askGates() && random === null) this.runAll()
    while (ready.length > 0 && random !== null && random.below(2) === 1)
      this.runFirst(ready[random.below(ready.length)])
  }

  /** Completes `queue` up to `position`, and all work that this depends on. */
  finish(queue: StreamQueue, position: number): void {
    this.complete(queue, position)
    if (this.random === null) this.runAll()
  }

  /** Completes all submitted work of `queue`; for the legacy stream, also of the blocking streams. */
  finishStream(queue: StreamQueue): void {
    if (queue.kind === 'legacy') this.orderByDefaultStream(queue)
    this.finish(queue, queue.submitted)
  }

  /** Whether all submitted work of `queue` has completed; for the legacy stream, also of the blocking streams. */
  isIdle(queue: StreamQueue): boolean {
    if (queue.kind === 'legacy') this.orderByDefaultStream(queue)
    return queue.completed === queue.submitted
  }

  // The legacy stream waits for earlier work of all blocking streams, and they for its work.
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

  /** Completes released positions before the first entry, and makes the queue ready or blocked by that entry. */
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
      this.isRunning = true
      try {
        effect()
      } catch (error) {
        const code =
          error instanceof IllegalAddress ? RESULT.CUDA_ERROR_ILLEGAL_ADDRESS : RESULT.CUDA_ERROR_LAUNCH_FAILED
        group.fault = { code, detail: thrownText(error), cause: error }
      } finally {
        this.isRunning = false
      }
    }
    this.advance(queue, position)
    this.update(queue)
  }

  private waitForGate(queue: StreamQueue, condition: GateCondition): void {
    this.orderByDefaultStream(queue)
    const gate = new Gate(queue, queue.submitted + 1, condition)
    if (gate.isOpen) return
    this.closedGates.add(gate)
    this.append(queue, null, gate, 1)
  }

  /** Completes the gates that are open; returns whether there were some. */
  private askGates(): boolean {
    let opened = false
    for (const gate of this.closedGates) {
      if (!gate.isOpen) continue
      this.closedGates.delete(gate)
      gate.released = 1
      this.update(gate)
      opened = true
    }
    return opened
  }

  private complete(queue: StreamQueue, position: number): void {
    while (!this.reach(queue, position)) this.openGates()
  }

  /** Completes `queue` up to `position`, or up to work behind a closed gate; returns whether it reached `position`. */
  // The recursion is at most as deep as there are streams: an entry waits only for work submitted before it, so the
  // recursion never returns to a queue that it is completing.
  private reach(queue: StreamQueue, position: number): boolean {
    if (queue instanceof Gate) return queue.completed >= position
    while (queue.completed < position) {
      const first = queue.firstEntry
      if (first - 1 > queue.completed) {
        queue.released = Math.max(queue.released, Math.min(first - 1, position))
        this.update(queue)
        continue
      }
      if (queue.firstOther !== null && !this.reach(queue.firstOther, queue.firstOtherPosition)) return false
      this.runFirst(queue)
    }
    return true
  }

  /** Opens gates by all work that can run, or waits a moment for another process. */
  private openGates(): void {
    this.runAll()
    for (const gate of this.closedGates) this.reach(gate.waiter, gate.position - 1) // held operations before it, too
    if (this.askGates()) return
    const reasons = [...this.closedGates].filter(gate => gate.isFirst).map(gate => gate.condition.stuck())
    if (!reasons.includes(null)) throw new EndlessWait(`the host waits for ever: ${[...new Set(reasons)].join('; ')}`)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ASK_AGAIN_MS)
  }
}
