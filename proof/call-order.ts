// The order of work, derived from the driver's calls by vector clocks over streams. It shares no code with
// src/core/order, and does not ask the simulated device. Work comes before other work by its stream, by an event that
// was recorded and waited for, or when the host has seen it complete. That work happens to have run already proves
// nothing. The implicit order of the legacy default stream, and of several launches of one graph, does not count
// either.

import { CU_STREAM_LEGACY, CU_STREAM_LEGACY_DEFAULT, CU_STREAM_PER_THREAD } from '../src/core/driver/constants.js'

/** By queue number: all work of the queue up to this position. */
type VectorTime = readonly number[]

/** A piece of work in a graph, with its predecessors there. */
export interface CapturedNode {
  readonly after: readonly CapturedNode[]
}

/** The work of one stream, open or ended. */
export class Queue {
  /** the position of the latest work or record */
  position = 0
  /** the work that all later work of this queue comes after; replaced, never changed */
  after: VectorTime = []
  /** the capture that it is part of, and the predecessors of its next node there */
  capture: CapturedWork | null = null
  tails: readonly CapturedNode[] = []

  constructor(
    readonly number: number,
    readonly context: number,
  ) {}
}

/** A capture, and the graph that comes of it. */
export class CapturedWork {
  readonly queues = new Set<Queue>()
  /** none of its work will run any more */
  isGone = false
}

/** All work submitted to a stream up to some moment; for a captured stream, all nodes recorded. */
export interface Point {
  readonly queue: Queue
  readonly position: number
  readonly capture: CapturedWork | null
  readonly tails: readonly CapturedNode[]
}

/** A point with the work that comes before it. */
interface Mark extends Point {
  readonly after: VectorTime
}

export class CallOrder {
  private readonly queues: Queue[] = []
  private readonly byHandle = new Map<number, Queue>()
  /** legacy default streams by context; per-thread default streams by thread, then context */
  private readonly legacy = new Map<number, Queue>()
  private readonly perThread = new Map<unknown, Map<number, Queue>>()
  private readonly events = new Map<number, Mark>()
  /** by queue: the last position that the host has seen complete */
  private readonly told: number[] = []

  open(handle: number, context: number): void {
    this.byHandle.set(handle, this.newQueue(context))
  }

  end(handle: number): void {
    this.byHandle.delete(handle)
  }

  /** The stream that a handle means in a context, for a thread. */
  queueOf(handle: number, context: number, thread: unknown): Queue {
    if (handle === CU_STREAM_LEGACY_DEFAULT || handle === CU_STREAM_LEGACY) return this.defaultOf(this.legacy, context)
    if (handle !== CU_STREAM_PER_THREAD) return this.byHandle.get(handle)!
    const ofThread = this.perThread.get(thread) ?? new Map<number, Queue>()
    this.perThread.set(thread, ofThread)
    return this.defaultOf(ofThread, context)
  }

  /** Some work was submitted. */
  submit(queue: Queue): Point {
    if (queue.capture === null) queue.position++
    else queue.tails = [{ after: queue.tails }]
    return pointOf(queue)
  }

  record(event: number, queue: Queue): void {
    if (queue.capture === null) queue.position++ // so that it covers no work that is noted later
    this.events.set(event, markOf(queue))
  }

  forget(event: number): void {
    this.events.delete(event)
  }

  wait(queue: Queue, event: number): void {
    const mark = this.events.get(event)
    if (mark === undefined) return
    if (mark.capture === null) queue.after = merge(queue.after, mark)
    else {
      queue.capture = mark.capture
      queue.tails = [...new Set([...queue.tails, ...mark.tails])]
      mark.capture.queues.add(queue)
    }
  }

  toldOfEvent(event: number): void {
    const mark = this.events.get(event)
    if (mark !== undefined) this.learn(mark)
  }

  toldOfQueue(queue: Queue): void {
    queue.position++ // a call that asks or waits is a mark
    this.learn(markOf(queue))
  }

  toldOfContext(context: number): void {
    for (const queue of this.queues) if (queue.context === context) this.toldOfQueue(queue)
  }

  beginCapture(queue: Queue): void {
    queue.capture = new CapturedWork()
    queue.capture.queues.add(queue)
  }

  endCapture({ queues }: CapturedWork): void {
    for (const queue of queues) {
      queue.capture = null
      queue.tails = []
    }
  }

  /**
   * Whether `work` is sure to come before all later work of `later`; with null, whether the host has seen it
   * complete. Captured work comes only after work that the host has seen complete, and after work of its own capture.
   */
  comesBefore(work: Point, later: Queue | null): boolean {
    const { queue, position, capture, tails } = work
    if (capture !== null) return capture.isGone || reaches(later?.capture === capture ? later.tails : [], tails)
    if ((this.told[queue.number] ?? 0) >= position) return true
    if (later === null || later.capture !== null) return false
    return later === queue || (later.after[queue.number] ?? 0) >= position
  }

  private learn({ queue, position, after }: Mark): void {
    const { told } = this
    told[queue.number] = Math.max(position, told[queue.number])
    for (let number = 0; number < after.length; number++) if (after[number] > told[number]) told[number] = after[number]
  }

  private defaultOf(known: Map<number, Queue>, context: number): Queue {
    const queue = known.get(context) ?? this.newQueue(context)
    known.set(context, queue)
    return queue
  }

  private newQueue(context: number): Queue {
    const queue = new Queue(this.queues.length, context)
    this.queues.push(queue)
    this.told.push(0)
    return queue
  }
}

export function pointOf(queue: Queue): Point {
  const { position, capture, tails } = queue
  return { queue, position, capture, tails }
}

function markOf(queue: Queue): Mark {
  return { ...pointOf(queue), after: queue.after }
}

function merge(vectorTime: VectorTime, { queue, position, after }: Mark): VectorTime {
  const length = Math.max(vectorTime.length, after.length, queue.number + 1)
  const merged = new Array<number>(length)
  for (let number = 0; number < length; number++) {
    merged[number] = Math.max(vectorTime[number] ?? 0, after[number] ?? 0)
  }
  merged[queue.number] = Math.max(merged[queue.number], position)
  return merged
}

/** Whether all `nodes` are among the tails, or come before them. */
function reaches(tails: readonly CapturedNode[], nodes: readonly CapturedNode[]): boolean {
  const found = new Set<CapturedNode>()
  const left = [...tails]
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    if (found.has(node)) continue
    found.add(node)
    left.push(...node.after)
  }
  return nodes.every(node => found.has(node))
}
