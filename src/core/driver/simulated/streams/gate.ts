// A condition outside of the streams that work waits for, such as work of another process. A gate is a queue with one
// position, which completes once the condition holds. So the rules for waits between queues serve for it, too.
// scheduler.ts asks the conditions.

import { StreamQueue } from './stream-queue.js'

/** What work behind a gate waits for. */
export interface GateCondition {
  /** Whether the work may run. Asked once all earlier work of the queue is complete, and not again after true. */
  isOpen(): boolean
  /** Why the condition can never hold while this thread waits, for people; null if it may hold. */
  stuck(): string | null
}

/** A part of work, behind its gate. */
export interface GatedStep {
  readonly gate: GateCondition
  readonly effect: () => void
}

/** A condition, and the entry that waits for it. */
export class Gate extends StreamQueue {
  constructor(
    /** the queue whose entry waits, and the position of the entry */
    readonly waiter: StreamQueue,
    readonly position: number,
    readonly condition: GateCondition,
  ) {
    super(waiter.group, 'non-blocking', 0)
    this.submitted = 1
  }

  /** Whether nothing else comes first in the queue. */
  get isFirst(): boolean {
    return this.waiter.completed === this.position - 1
  }

  /** Work of a context that a fault has ended waits for nothing more. */
  get isOpen(): boolean {
    return this.isFirst && (this.group.fault !== null || this.condition.isOpen())
  }
}
