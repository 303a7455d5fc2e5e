import type { ThreadState } from '../remote/thread-state.js'

/** Why a context is dead: the result code that every call gets from now on, and what happened. */
export interface Fault {
  readonly code: number
  readonly detail: string
}

/** 'blocking' streams and the legacy default stream wait for each other; 'non-blocking' ones are on their own. */
export type StreamKind = 'legacy' | 'blocking' | 'non-blocking'

/** One operation of a capture. */
export interface CapturedNode {
  readonly effect: () => void
  readonly after: readonly CapturedNode[]
}

/** Work that is recorded instead of run; the rules are in captures.ts. */
export interface StreamCapture {
  readonly origin: StreamQueue
  /** CUstreamCaptureMode */
  readonly mode: number
  /** in the order of their recording */
  readonly nodes: CapturedNode[]
  /** that began it */
  readonly thread: ThreadState
  readonly streams: Set<StreamQueue>
  invalidated: boolean
  ended: boolean
}

/** All that was submitted to one stream at some moment, or of a captured stream all that was recorded. */
export interface WorkPoint {
  /** @internal */
  readonly queue: StreamQueue
  /** index of the work in its stream's queue */
  readonly position: number
  /** counted over all streams */
  readonly moment: number
  /** @internal */
  readonly capture: StreamCapture | null
  /** @internal */
  readonly tails: readonly CapturedNode[]
}

/** The streams of one context. */
export class StreamGroup {
  /** alive, or destroyed with work left */
  readonly queues = new Set<StreamQueue>()
  /** by stream of another context: what those that are gone came after */
  private readonly endedAfter = new Map<StreamQueue, number>()
  readonly legacy: StreamQueue
  /** the per-thread default stream of the first thread that uses its own; each further one gets another */
  readonly perThread: StreamQueue
  perThreadUsed = false
  /** whether a blocking stream got work since the legacy stream last waited for them all */
  blockingSubmitted = false
  fault: Fault | null = null
  /** the moment up to which the host has waited for all streams */
  synchronizedAt = 0

  constructor(
    /** the driver's number of the context */
    readonly handle: number,
    nextId: () => number,
  ) {
    this.legacy = this.add('legacy', nextId())
    this.perThread = this.add('blocking', nextId())
  }

  /** A destroyed stream has completed its work, of which the host is told when it waits for the context. */
  remove(queue: StreamQueue): void {
    this.queues.delete(queue)
    for (const [other, position] of queue.after) {
      if (other.group !== this) this.endedAfter.set(other, Math.max(position, this.endedAfter.get(other) ?? 0))
    }
  }

  /** The host waits for all streams, and so for what they came after in other contexts. */
  observeAll(): void {
    for (const queue of this.queues) queue.observe(queue.submitted, queue.after)
    for (const [other, position] of this.endedAfter) other.observe(position, new Map())
    this.endedAfter.clear()
  }

  add(kind: StreamKind, id: number): StreamQueue {
    const queue = new StreamQueue(this, kind, id)
    this.queues.add(queue)
    return queue
  }
}

/** The work submitted to one stream; the rules are the scheduler's. Entries are a ring, so that nothing is allocated. */
export class StreamQueue {
  /** the last position given out, and the last one completed */
  submitted = 0
  completed = 0
  /** held operations up to here may complete */
  released = 0
  /** entries in the ring: the positions that are not held operations and have not completed */
  count = 0
  destroyed = false
  /** queues whose first entry waits for this one; `blocked`: this one is in such a list */
  readonly waiters: StreamQueue[] = []
  blocked = false
  /** where the scheduler's ready list has this queue, or -1 */
  readyIndex = -1
  /** how much of the legacy stream this one has already waited for */
  legacySeen = 0
  /** up to which position the host was told that all has completed */
  seen = 0
  /** by stream: the position that everything submitted from now on comes after, by events; replaced, never changed */
  after: ReadonlyMap<StreamQueue, number> = new Map()
  /** the capture that the stream is part of, and the nodes that its next one comes after */
  capture: StreamCapture | null = null
  tails: readonly CapturedNode[] = []

  private head = 0
  private positions = new Float64Array(8)
  private effects: ((() => void) | null)[] = Array(8).fill(null)
  private others: (StreamQueue | null)[] = Array(8).fill(null)
  private otherPositions = new Float64Array(8)
  private waited: WeakMap<StreamQueue, number> | null = null

  constructor(
    readonly group: StreamGroup,
    readonly kind: StreamKind,
    readonly id: number,
  ) {}

  /** the position of the first entry; without entries, of the next one to come */
  get firstEntry(): number {
    return this.count === 0 ? this.submitted + 1 : this.positions[this.head]
  }

  /** what the first entry waits for */
  get firstOther(): StreamQueue | null {
    return this.others[this.head]
  }

  get firstOtherPosition(): number {
    return this.otherPositions[this.head]
  }

  push(effect: (() => void) | null, other: StreamQueue | null, otherPosition: number): void {
    if (this.count === this.positions.length) this.grow()
    const index = (this.head + this.count++) & (this.positions.length - 1)
    this.positions[index] = ++this.submitted
    this.effects[index] = effect
    this.others[index] = other
    this.otherPositions[index] = otherPosition
  }

  /** Takes the first entry out and returns its effect. */
  shift(): (() => void) | null {
    const effect = this.effects[this.head]
    this.effects[this.head] = null
    this.others[this.head] = null
    this.head = (this.head + 1) & (this.positions.length - 1)
    this.count--
    return effect
  }

  /** Remembers that this stream waits for `position` of `other`, for whoever asks how the two are ordered. */
  noteWait(other: StreamQueue, position: number): void {
    this.waited ??= new WeakMap()
    this.waited.set(other, Math.max(position, this.waited.get(other) ?? 0))
  }

  /** Whether what is submitted from now on comes after `position` of `other`, by an event waited for directly. */
  comesAfter(other: StreamQueue, position: number): boolean {
    return other === this || (this.waited?.get(other) ?? 0) >= position
  }

  /** This stream waits for an event of `other` at `position`, which itself came `after` other work. */
  follow(other: StreamQueue, position: number, after: ReadonlyMap<StreamQueue, number>): void {
    const merged = new Map([...this.after].filter(([queue]) => !queue.destroyed || queue.seen < queue.submitted))
    for (const [queue, reached] of [...after, [other, position] as const]) {
      if (reached > (merged.get(queue) ?? 0)) merged.set(queue, reached)
    }
    this.after = merged
  }

  /** The host is told that `position`, which came `after` other work, has completed. */
  observe(position: number, after: ReadonlyMap<StreamQueue, number>): void {
    if (position > this.seen) this.seen = position
    for (const [queue, reached] of after) if (reached > queue.seen) queue.seen = reached
  }

  /** No more work comes; what was submitted still completes. */
  destroy(): void {
    this.destroyed = true
    if (this.completed === this.submitted) this.group.remove(this)
  }

  private grow(): void {
    const old = this.positions.length
    const order = Array.from({ length: old }, (_, i) => (this.head + i) & (old - 1))
    const pad = Array<null>(old).fill(null)
    const positions = new Float64Array(old * 2)
    const otherPositions = new Float64Array(old * 2)
    positions.set(order.map(i => this.positions[i]))
    otherPositions.set(order.map(i => this.otherPositions[i]))
    this.effects = [...order.map(i => this.effects[i]), ...pad]
    this.others = [...order.map(i => this.others[i]), ...pad]
    this.positions = positions
    this.otherPositions = otherPositions
    this.head = 0
  }
}
