// Streams and events of the simulated driver.

import { CU_STREAM_NON_BLOCKING, RESULT } from '../../constants.js'
import { CALL } from '../call-interceptor.js'
import { MemoryCalls } from './memory-calls.js'

export class StreamCalls extends MemoryCalls {
  cuStreamCreate(flags: number): number {
    const context = this.enter(CALL.cuStreamCreate)
    return this.streams.create(context, flags)
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

  cuEventCreate(_flags: number): number {
    return this.streams.createEvent(this.enter(CALL.cuEventCreate))
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
    entry.position = this.scheduler.submit(queue, null)
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
}
