// Per-thread state of CUDA: the current context, the capture mode and the per-thread default streams.
// call-interceptor.ts holds the state of the calling thread; remote/served-driver.ts has one for each connected
// thread.

import type { SimulatedContext } from './context.js'
import type { StreamGroup, StreamQueue } from './streams/stream-queue.js'

/** The state of one thread of the program. */
export class ThreadState {
  /** CUstreamCaptureMode for the unsafe calls of this thread */
  captureMode = 0
  private context: SimulatedContext | null = null
  /** by context: the per-thread default stream */
  private readonly streams = new Map<StreamGroup, StreamQueue>()

  /** The current context; null also after another thread made the last release of it. */
  get current(): SimulatedContext | null {
    return this.context !== null && this.context.retained > 0 ? this.context : null
  }

  set current(context: SimulatedContext | null) {
    this.context = context
  }

  /** The stream of this thread for CU_STREAM_PER_THREAD in `context`. */
  streamOf(context: SimulatedContext, nextId: () => number): StreamQueue {
    let stream = this.streams.get(context)
    if (stream === undefined) {
      stream = context.perThreadUsed ? context.add('blocking', nextId()) : context.perThread
      context.perThreadUsed = true
      this.streams.set(context, stream)
    }
    return stream
  }

  /** The thread has ended. Its submitted work still completes. */
  end(): void {
    for (const stream of this.streams.values()) stream.destroy()
    this.streams.clear()
  }
}
