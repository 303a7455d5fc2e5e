// The state of streams: queues of submitted work, grouped by context. scheduler.ts runs the work, captures.ts records
// it.

/** The fault that ended a context: the result code of all later calls, and its cause. */
interface Fault {
  readonly code: number
  readonly detail: string
  /** what the work has thrown */
  readonly cause: unknown
}

/** 'blocking' streams and the legacy default stream wait for each other; 'non-blocking' streams do not. */
type StreamKind = 'legacy' | 'blocking' | 'non-blocking'

/** A captured operation, and the nodes that it depends on. */
export interface CapturedNode {
  /** makes its work on the stream of a launch */
  readonly submit: (queue: StreamQueue) => void
  readonly after: readonly CapturedNode[]
}

/** The thread that began a capture; captures only ask whether two are the same. */
interface CapturingThread {
  /** CUstreamCaptureMode for the unsafe calls of this thread */
  readonly captureMode: number
}

/** A capture in progress; captures.ts has its rules. */
export interface StreamCapture {
  readonly origin: StreamQueue
  /** CUstreamCaptureMode */
  readonly mode: number
  /** in the order of recording */
  readonly nodes: CapturedNode[]
  /** the thread that began the capture */
  readonly thread: CapturingThread
  readonly streams: Set<StreamQueue>
  invalidated: boolean
  ended: boolean
}

/** The work submitted to a stream up to some moment; for a captured stream, the recorded work. */
export interface WorkPoint {
  /** @internal */
  readonly queue: StreamQueue
  /** index of the work in its stream's queue */
  readonly position: number
  /** counts work points and context-wide waits of the driver */
  readonly moment: number
  /** @internal */
  readonly capture: StreamCapture | null
  /** @internal */
  readonly tails: readonly CapturedNode[]
}

/** The streams of one context. */
export class StreamGroup {
  /** all streams, with destroyed ones that have work left */
  readonly queues = new Set<StreamQueue>()
  /** by stream of another context: the position that came before work of streams that are gone */
  private readonly endedAfter = new Map<StreamQueue, number>()
  readonly legacy: StreamQueue
  /** the per-thread default stream of the first thread that uses one; further threads get new streams */
  readonly perThread: StreamQueue
  perThreadUsed = false
  /** whether a blocking stream got work since the legacy stream last waited for all of them */
  blockingSubmitted = false
  /** the fault that ended the context */
  fault: Fault | null = null
  /** the moment of the latest wait of the host for the whole context */
  synchronizedAt = 0

  constructor(
    /** the driver's number of the context */
    readonly handle: number,
    nextId: () => number,
  ) {
    this.legacy = this.add('legacy', nextId())
    this.perThread = this.add('blocking', nextId())
  }

  /** Removes a destroyed stream that has completed its work. The host sees this at its next wait for the context. */
  remove(queue: StreamQueue): void {
    this.queues.delete(queue)
    for (const [other, position] of queue.after) {
      if (other.group !== this) this.endedAfter.set(other, Math.max(position, this.endedAfter.get(other) ?? 0))
    }
  }

  /** The host has waited for all streams, and so for earlier work in other contexts. */
  observeAll(): void {
    for (const queue of this.queues) queue.observe(queue.submitted, queue.after)
    for (const [other, position] of this.endedAfter) other.observe(position, new Map())
    this.endedAfter.clear()
  }

  /** Adds a stream with a unique id. */
  add(kind: StreamKind, id: number): StreamQueue {
    const queue = new StreamQueue(this, kind, id)
    this.queues.add(queue)
    return queue
  }
}

/** The work submitted to one stream; the scheduler has the rules. Entries are a ring, which allocates nothing. */
export class StreamQueue {
  /** the last submitted position, and the last completed position */
  submitted = 0
  completed = 0
  /** held operations up to here may complete */
  released = 0
  /** entries in the ring: positions that have not completed, except held operations */
  count = 0
  destroyed = false
  /** lower numbers come first on a GPU; here it has no effect */
  priority = 0
  /** queues with a first entry that waits for this queue; `blocked` says that this queue is in such a list */
  readonly waiters: StreamQueue[] = []
  blocked = false
  /** index of this queue in the scheduler's ready list, or -1 */
  readyIndex = -1
  /** the position of the legacy stream that this stream has waited for */
  legacySeen = 0
  /** the position up to which the host has seen all work complete */
  seen = 0
  /** by stream: the position that comes before all later work of this stream, by events; replaced, never changed */
  after: ReadonlyMap<StreamQueue, number> = new Map()
  /** the capture that the stream takes part in, and the nodes that its next node depends on */
  capture: StreamCapture | null = null
  tails: readonly CapturedNode[] = []

  private head = 0
  private positions = new Float64Array(8)
  private effects: ((() => void) | null)[] = Array(8).fill(null)
  private others: (StreamQueue | null)[] = Array(8).fill(null)
  private otherPositions = new Float64Array(8)
  /** by stream: the position that this stream has waited for directly */
  private waited: WeakMap<StreamQueue, number> | null = null

  constructor(
    readonly group: StreamGroup,
    readonly kind: StreamKind,
    readonly id: number,
  ) {}

  /** the position of the first entry; without entries, of the next entry */
  get firstEntry(): number {
    return this.count === 0 ? this.submitted + 1 : this.positions[this.head]
  }

  /** the stream that the first entry waits for */
  get firstOther(): StreamQueue | null {
    return this.others[this.head]
  }

  get firstOtherPosition(): number {
    return this.otherPositions[this.head]
  }

  /** Records an operation in the capture that the stream takes part in. */
  record(node: CapturedNode): void {
    this.capture!.nodes.push(node)
    this.tails = [node]
  }

  /** Appends an entry with an effect, or with a wait for a position of another stream. */
  push(effect: (() => void) | null, other: StreamQueue | null, otherPosition: number): void {
    if (this.count === this.positions.length) this.grow()
    const index = (this.head + this.count++) & (this.positions.length - 1)
    this.positions[index] = ++this.submitted
    this.effects[index] = effect
    this.others[index] = other
    this.otherPositions[index] = otherPosition
  }

  /** Removes the first entry, and returns its effect. */
  shift(): (() => void) | null {
    const effect = this.effects[this.head]
    this.effects[this.head] = null
    this.others[this.head] = null
    this.head = (this.head + 1) & (this.positions.length - 1)
    this.count--
    return effect
  }

  /** Remembers that this stream waits for `position` of `other`, for `comesAfter`. */
  noteWait(other: StreamQueue, position: number): void {
    this.waited ??= new WeakMap()
    this.waited.set(other, Math.max(position, this.waited.get(other) ?? 0))
  }

  /** Whether later work of this stream comes after `position` of `other`, by a direct wait for an event. */
  comesAfter(other: StreamQueue, position: number): boolean {
    return other === this || (this.waited?.get(other) ?? 0) >= position
  }

  /** Notes that this stream waits for an event of `other` at `position`, which comes `after` other work. */
  follow(other: StreamQueue, position: number, after: ReadonlyMap<StreamQueue, number>): void {
    const merged = new Map([...this.after].filter(([queue]) => !queue.destroyed || queue.seen < queue.submitted))
    for (const [queue, reached] of [...after, [other, position] as const]) {
      if (reached > (merged.get(queue) ?? 0)) merged.set(queue, reached)
    }
    this.after = merged
  }

  /** Notes that the host has seen `position` complete, and so the work that it comes `after`. */
  observe(position: number, after: ReadonlyMap<StreamQueue, number>): void {
    if (position > this.seen) this.seen = position
    for (const [queue, reached] of after) if (reached > queue.seen) queue.seen = reached
  }

  /** Ends the stream; submitted work still completes. */
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
