// Streams, events, captures and graphs of the simulated driver.

import {
  CU_EVENT_DISABLE_TIMING,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_NON_BLOCKING,
  RESULT,
} from '../../constants.js'
import { CALL } from '../call-interceptor.js'
import type { Event } from '../streams/streams.js'
import { MemoryCalls } from './memory-calls.js'

/** The priorities of an H200's streams. */
const LEAST_PRIORITY = 0
const GREATEST_PRIORITY = -5

export class StreamCalls extends MemoryCalls {
  cuCtxGetStreamPriorityRange(): { least: number; greatest: number } {
    this.enter(CALL.cuCtxGetStreamPriorityRange)
    return { least: LEAST_PRIORITY, greatest: GREATEST_PRIORITY }
  }

  cuStreamCreate(flags: number): number {
    const context = this.enter(CALL.cuStreamCreate)
    return this.streams.create(context, flags)
  }

  cuStreamCreateWithPriority(flags: number, priority: number): number {
    const context = this.enter(CALL.cuStreamCreateWithPriority)
    const stream = this.streams.create(context, flags)
    this.streams.queue(context, stream).priority = Math.min(LEAST_PRIORITY, Math.max(GREATEST_PRIORITY, priority))
    return stream
  }

  cuStreamGetPriority(stream: number): number {
    return this.streams.queue(this.enter(CALL.cuStreamGetPriority), stream).priority
  }

  cuStreamDestroy(stream: number): void {
    this.enter(CALL.cuStreamDestroy)
    this.streams.destroy(stream)
  }

  cuStreamSynchronize(stream: number): void {
    const queue = this.streams.queue(this.enter(CALL.cuStreamSynchronize), stream)
    this.captures.checkSubmit(queue)
    this.captures.checkNotCaptured(queue, 'a wait')
    this.scheduler.finishStream(queue)
    queue.observe(queue.submitted, queue.after)
    this.synchronized(queue.group)
  }

  cuStreamQuery(stream: number): boolean {
    const queue = this.streams.queue(this.enter(CALL.cuStreamQuery), stream)
    this.captures.checkSubmit(queue)
    this.captures.checkNotCaptured(queue, 'a query')
    const idle = this.scheduler.isIdle(queue)
    if (idle) queue.observe(queue.submitted, queue.after)
    return idle
  }

  cuStreamWaitEvent(stream: number, event: number): void {
    const queue = this.streams.queue(this.enter(CALL.cuStreamWaitEvent), stream)
    const recorded = this.streams.event(event)
    this.captures.checkSubmit(queue)
    if (recorded.capture !== null) {
      this.captures.follow(queue, recorded.capture, recorded.tails)
      return
    }
    if (recorded.queue === null) return
    if (queue.capture !== null) this.captures.refuseIsolated(queue.capture)
    this.scheduler.wait(queue, recorded.queue, recorded.position)
    queue.noteWait(recorded.queue, recorded.position)
    queue.follow(recorded.queue, recorded.position, recorded.after)
  }

  cuStreamGetCtx(stream: number): number {
    return this.streams.queue(this.enter(CALL.cuStreamGetCtx), stream).group.handle
  }

  cuStreamGetId(stream: number): number {
    return this.streams.queue(this.enter(CALL.cuStreamGetId), stream).id
  }

  cuStreamGetFlags(stream: number): number {
    const queue = this.streams.queue(this.enter(CALL.cuStreamGetFlags), stream)
    return queue.kind === 'non-blocking' ? CU_STREAM_NON_BLOCKING : 0
  }

  cuEventCreate(flags: number): number {
    const hasTiming = (flags & CU_EVENT_DISABLE_TIMING) === 0
    return this.streams.createEvent(this.enter(CALL.cuEventCreate), hasTiming)
  }

  cuEventDestroy(event: number): void {
    this.enter(CALL.cuEventDestroy)
    this.streams.destroyEvent(event)
  }

  cuEventRecord(event: number, stream: number): void {
    const context = this.enter(CALL.cuEventRecord)
    const entry = this.streams.event(event)
    const queue = this.streams.queueOf(context, stream)
    if (entry.context !== context) {
      throw this.interceptor.refuse(
        RESULT.CUDA_ERROR_INVALID_HANDLE,
        'the event belongs to another context than the stream',
      )
    }
    entry.capture = queue.capture
    entry.tails = queue.tails
    if (queue.capture !== null) return
    entry.position = this.scheduler.submit(queue, this.noteTime(entry))
    entry.after = queue.after
    entry.queue = queue
  }

  cuEventQuery(event: number): boolean {
    this.enter(CALL.cuEventQuery)
    const { queue, position, after, capture } = this.streams.event(event)
    if (capture !== null) this.captures.refuseCaptured(capture)
    if (queue === null) return true
    const done = queue.completed >= position
    if (done) queue.observe(position, after)
    return done
  }

  cuEventSynchronize(event: number): void {
    this.enter(CALL.cuEventSynchronize)
    const { context, queue, position, after, capture } = this.streams.event(event)
    if (capture !== null) this.captures.refuseCaptured(capture)
    if (queue !== null) {
      this.scheduler.finish(queue, position)
      queue.observe(position, after)
    }
    this.synchronized(context)
  }

  cuEventElapsedTime(start: number, end: number): number {
    this.enter(CALL.cuEventElapsedTime)
    return (this.secondsOf(end) - this.secondsOf(start)) * 1000
  }

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

  /** When the latest record of an event completed; refuses an event without timing or record. */
  private secondsOf(event: number): number {
    const { time, queue, position, capture } = this.streams.event(event)
    if (capture !== null) this.captures.refuseCaptured(capture)
    if (time === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'the event has no timing')
    if (queue === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'the event was never recorded')
    if (queue.completed < position) throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_READY, 'not complete yet')
    return time.seconds
  }

  /** The effect of a record: it notes the time of its completion; null for an event without timing. */
  private noteTime(event: Event): (() => void) | null {
    if (event.time === null) return null
    const time = { seconds: Number.NaN } // of this record: an earlier one may complete later, on another stream
    event.time = time
    return () => {
      time.seconds = this.interceptor.clockSeconds
    }
  }
}
