// Captures and graphs of the simulated driver.

import { CU_STREAM_CAPTURE_MODE_RELAXED, RESULT } from '../../constants.js'
import { CALL } from '../call-interceptor.js'
import { StreamCalls } from './stream-calls.js'

export class GraphCalls extends StreamCalls {
  cuStreamBeginCapture(stream: number, mode: number): void {
    const context = this.enter(CALL.cuStreamBeginCapture)
    this.captures.begin(this.streams.queueOf(context, stream), stream, mode)
  }

  cuStreamEndCapture(stream: number): number {
    const context = this.enter(CALL.cuStreamEndCapture)
    return this.captures.end(this.streams.queue(context, stream), context)
  }

  cuStreamIsCapturing(stream: number): boolean {
    const queue = this.streams.queue(this.enter(CALL.cuStreamIsCapturing), stream)
    return queue.capture !== null
  }

  cuThreadExchangeStreamCaptureMode(mode: number): number {
    this.begin(CALL.cuThreadExchangeStreamCaptureMode)
    if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE)
    const { thread } = this.interceptor
    const before = thread.captureMode
    thread.captureMode = mode
    return before
  }

  cuGraphDestroy(graph: number): void {
    this.enter(CALL.cuGraphDestroy)
    this.captures.destroyGraph(graph)
  }

  cuGraphInstantiate(graph: number): number {
    this.enter(CALL.cuGraphInstantiate)
    return this.captures.instantiate(graph)
  }

  cuGraphLaunch(executable: number, stream: number): void {
    const context = this.enter(CALL.cuGraphLaunch)
    const graph = this.captures.executable(executable)
    const queue = this.uncaptured(context, stream)
    if (graph.lastQueue !== null) this.scheduler.wait(queue, graph.lastQueue, graph.lastPosition)
    graph.lastPosition = this.scheduler.submitGraph(queue, graph.nodes)
    graph.lastQueue = queue
  }

  /** Launches that were submitted still complete. */
  cuGraphExecDestroy(executable: number): void {
    this.enter(CALL.cuGraphExecDestroy)
    this.captures.destroyExecutable(executable)
  }
}
