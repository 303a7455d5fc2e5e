// The order of work as the calls of the driver make it: vector clocks over streams. It knows nothing of src/order, nor does it
// ask the simulated device: work comes before other work by its stream, by an event that was recorded and waited for, or
// because the host was told that it is complete. That it has merely run by now counts for nothing, nor does the order that
// the legacy default stream brings, or launches of one graph.

import { CU_STREAM_LEGACY, CU_STREAM_LEGACY_DEFAULT, CU_STREAM_PER_THREAD } from '../src/driver/constants.js'

/** By number of a queue: all of its work up to this position. */
type VectorTime = readonly number[]

/** Work that a graph will do, and what it comes after within the graph. */
export interface CapturedNode {
  readonly after: readonly CapturedNode[]
}

/** What one stream, or one that has ended, was given to do. */
export class Queue {
  /** of what was submitted, or recorded on it, last */
  position = 0
  /** what everything submitted from now on comes after; replaced, never changed */
  after: VectorTime = []
  /** the capture that it is part of, and the nodes that its next one comes after */
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
  /** nothing of it will run any more */
  isGone = false
}

/** All that was submitted to a stream at some moment, or of a captured one all that was recorded. */
export interface Point {
  readonly queue: Queue
  readonly position: number
  readonly capture: CapturedWork | null
  readonly tails: readonly CapturedNode[]
}

/** A point together with all that comes before it. */
interface Mark extends Point {
  readonly after: VectorTime
}

export class CallOrder {
  private readonly queues: Queue[] = []
  private readonly byHandle = new Map<number, Queue>()
  /** by context; the default streams of threads by thread, then context */
  private readonly legacy = new Map<number, Queue>()
  private readonly perThread = new Map<unknown, Map<number, Queue>>()
  private readonly events = new Map<number, Mark>()
  /** by queue: what the host was told to be complete */
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
    if (queue.capture === null) queue.position++ // so that it covers nothing that is only noted afterwards
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
   * Whether `work` is sure to come before all that is submitted to `later` from now on, or with null, whether the host was told
   * that it is complete. Before captured work comes only what the host was told of, and the capture's own.
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

/** Whether all of some nodes are among others, or before these. */
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
