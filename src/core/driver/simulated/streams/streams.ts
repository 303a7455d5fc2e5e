// Streams and events by handle. The default streams have fixed handles: the legacy stream belongs to the current
// context, the per-thread stream to the current context and the calling thread. calls/ looks streams up here.

import { CU_STREAM_LEGACY_DEFAULT, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, RESULT } from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'
import type { SimulatedContext } from '../context.js'
import { HandleTable } from '../handle-table.js'
import type { Captures } from './captures.js'
import type { CapturedNode, StreamCapture, StreamQueue } from './stream-queue.js'

/** An event, with its latest record. */
export interface Event {
  readonly context: SimulatedContext
  /** the stream of the latest record and its position there; null if never recorded */
  queue: StreamQueue | null
  position: number
  /** by stream: the position that came before the record */
  after: StreamQueue['after']
  /** for a record on a captured stream: the capture, and the latest nodes of the stream */
  capture: StreamCapture | null
  tails: readonly CapturedNode[]
  /** the clock when the latest record completed; null without timing */
  time: { seconds: number } | null
}

/** The streams and events of all contexts. */
export class Streams {
  private readonly streams = new HandleTable<StreamQueue>(0x1000_0000)
  private readonly events = new HandleTable<Event>(0x2000_0000)
  private made = 0

  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly captures: Captures,
  ) {}

  /** A stream id, unique in this driver. */
  nextId(): number {
    return ++this.made
  }

  create(context: SimulatedContext, flags: number): number {
    const kind = flags & CU_STREAM_NON_BLOCKING ? 'non-blocking' : 'blocking'
    return this.streams.add(context.add(kind, this.nextId()))
  }

  /** Does not wait; submitted work still completes. */
  destroy(handle: number): void {
    const queue = this.streams.get(handle)
    if (queue === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such stream')
    this.captures.leave(queue)
    this.streams.remove(handle)
    queue.destroy()
  }

  /** The stream, for new work of `context`; refuses a stream of another context. */
  queueOf(context: SimulatedContext, handle: number): StreamQueue {
    const queue = this.queue(context, handle)
    this.captures.checkSubmit(queue)
    if (queue.group === context) return queue
    const fact = 'the stream belongs to another context than the current one'
    throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, fact)
  }

  /** The stream, of any context. Handles of default streams mean the streams of `context`. */
  queue(context: SimulatedContext, handle: number): StreamQueue {
    const queue = this.find(context, handle)
    if (queue === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such stream')
    return queue
  }

  find(context: SimulatedContext | null, handle: number): StreamQueue | undefined {
    if (handle === CU_STREAM_LEGACY_DEFAULT) return context?.legacy
    if (handle === CU_STREAM_PER_THREAD && context !== null) {
      return this.interceptor.thread.streamOf(context, () => this.nextId())
    }
    return this.streams.get(handle)
  }

  createEvent(context: SimulatedContext, hasTiming: boolean): number {
    const time = hasTiming ? { seconds: Number.NaN } : null
    return this.events.add({ context, queue: null, position: 0, after: new Map(), capture: null, tails: [], time })
  }

  destroyEvent(handle: number): void {
    if (this.events.remove(handle) === undefined) throw this.noEvent()
  }

  event(handle: number): Event {
    const event = this.events.get(handle)
    if (event === undefined) throw this.noEvent()
    return event
  }

  /** Removes the streams and events of a context that ends. */
  removeOf(context: SimulatedContext): void {
    this.streams.removeWhere(queue => queue.group === context)
    this.events.removeWhere(event => event.context === context)
  }

  private noEvent(): Error {
    return this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such event')
  }
}
