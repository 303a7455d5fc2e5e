import type { SimulatedContext } from './context.js'
import type { StreamGroup, StreamQueue } from './streams/stream-queue.js'

/** What CUDA keeps for each thread of the program. */
export class ThreadState {
  /** CUstreamCaptureMode by which this thread's unsafe calls are judged */
  captureMode = 0
  private context: SimulatedContext | null = null
  private readonly streams = new Map<StreamGroup, StreamQueue>()

  /** The current context; null also when another thread has let go of it for good. */
  get current(): SimulatedContext | null {
    return this.context !== null && this.context.retained > 0 ? this.context : null
  }

  set current(context: SimulatedContext | null) {
    this.context = context
  }

  /** The stream that CU_STREAM_PER_THREAD means in a context. */
  streamOf(context: SimulatedContext, nextId: () => number): StreamQueue {
    let stream = this.streams.get(context)
    if (stream === undefined) {
      stream = context.perThreadUsed ? context.add('blocking', nextId()) : context.perThread
      context.perThreadUsed = true
      this.streams.set(context, stream)
    }
    return stream
  }

  /** The thread has ended; what it submitted still completes. */
  end(): void {
    for (const stream of this.streams.values()) stream.destroy()
    this.streams.clear()
  }
}
