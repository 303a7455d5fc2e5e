// Streams, events, captures and graphs of libcuda.

import { exact, int, uint } from '../../../libraries/arguments.js'
import { CU_STREAM_CAPTURE_STATUS_NONE } from '../../constants.js'
import { NO_CONTEXT } from './bound-library.js'
import { MemoryCalls } from './memory-calls.js'

export class StreamCalls extends MemoryCalls {
  cuCtxGetStreamPriorityRange(): { least: number; greatest: number } {
    const { first, second } = this.buffer
    this.check('cuCtxGetStreamPriorityRange', this.live.cuCtxGetStreamPriorityRange(first, second))
    return { least: this.buffer.int(), greatest: this.buffer.intSecond() }
  }

  cuStreamCreate(flags: number): number {
    this.check('cuStreamCreate', this.live.cuStreamCreate(this.buffer.first, uint(flags, 'flags')))
    return this.buffer.exact()
  }

  cuStreamCreateWithPriority(flags: number, priority: number): number {
    const [whole, level] = [uint(flags, 'flags'), int(priority, 'priority')]
    this.check('cuStreamCreateWithPriority', this.live.cuStreamCreateWithPriority(this.buffer.first, whole, level))
    return this.buffer.exact()
  }

  cuStreamGetPriority(stream: number): number {
    this.check('cuStreamGetPriority', this.live.cuStreamGetPriority(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.int()
  }

  cuStreamDestroy(stream: number): void {
    this.check('cuStreamDestroy', this.live.cuStreamDestroy(exact(stream, 'stream')))
  }

  cuStreamSynchronize(stream: number): void {
    this.check('cuStreamSynchronize', this.live.cuStreamSynchronize(exact(stream, 'stream')))
  }

  cuStreamQuery(stream: number): boolean {
    return this.answer('cuStreamQuery', this.live.cuStreamQuery(exact(stream, 'stream')))
  }

  cuStreamWaitEvent(stream: number, event: number): void {
    this.check('cuStreamWaitEvent', this.live.cuStreamWaitEvent(exact(stream, 'stream'), exact(event, 'event'), 0))
  }

  cuStreamGetCtx(stream: number): number {
    this.check('cuStreamGetCtx', this.live.cuStreamGetCtx(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.exact()
  }

  cuStreamGetId(stream: number): number {
    this.check('cuStreamGetId', this.live.cuStreamGetId(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.exact()
  }

  cuStreamGetFlags(stream: number): number {
    this.check('cuStreamGetFlags', this.live.cuStreamGetFlags(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.int()
  }

  cuEventCreate(flags: number): number {
    this.check('cuEventCreate', this.live.cuEventCreate(this.buffer.first, uint(flags, 'flags')))
    return this.buffer.exact()
  }

  cuEventDestroy(event: number): void {
    this.check('cuEventDestroy', this.live.cuEventDestroy(exact(event, 'event')))
  }

  cuEventRecord(event: number, stream: number): void {
    this.check('cuEventRecord', this.live.cuEventRecord(exact(event, 'event'), exact(stream, 'stream')))
  }

  cuEventQuery(event: number): boolean {
    return this.answer('cuEventQuery', this.live.cuEventQuery(exact(event, 'event')))
  }

  cuEventSynchronize(event: number): void {
    this.check('cuEventSynchronize', this.live.cuEventSynchronize(exact(event, 'event')))
  }

  cuEventElapsedTime(start: number, end: number): number {
    const [from, to] = [exact(start, 'start'), exact(end, 'end')]
    this.check('cuEventElapsedTime', this.live.cuEventElapsedTime(this.buffer.first, from, to))
    return this.buffer.float()
  }

  cuStreamBeginCapture(stream: number, mode: number): void {
    this.check('cuStreamBeginCapture', this.live.cuStreamBeginCapture(exact(stream, 'stream'), int(mode, 'mode')))
  }

  cuStreamEndCapture(stream: number): number {
    this.check('cuStreamEndCapture', this.live.cuStreamEndCapture(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.exact()
  }

  cuStreamIsCapturing(stream: number): boolean {
    this.check('cuStreamIsCapturing', this.live.cuStreamIsCapturing(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.int() !== CU_STREAM_CAPTURE_STATUS_NONE
  }

  cuThreadExchangeStreamCaptureMode(mode: number): number {
    this.buffer.placeAmount(int(mode, 'mode'))
    const code = this.functions.cuThreadExchangeStreamCaptureMode(this.buffer.first)
    this.check('cuThreadExchangeStreamCaptureMode', code, NO_CONTEXT)
    return this.buffer.int()
  }

  cuGraphDestroy(graph: number): void {
    this.check('cuGraphDestroy', this.live.cuGraphDestroy(exact(graph, 'graph')))
  }

  cuGraphInstantiate(graph: number): number {
    this.check('cuGraphInstantiate', this.live.cuGraphInstantiate(this.buffer.first, exact(graph, 'graph'), 0))
    return this.buffer.exact()
  }

  cuGraphLaunch(executable: number, stream: number): void {
    this.check('cuGraphLaunch', this.live.cuGraphLaunch(exact(executable, 'executable'), exact(stream, 'stream')))
  }

  cuGraphExecDestroy(executable: number): void {
    this.check('cuGraphExecDestroy', this.live.cuGraphExecDestroy(exact(executable, 'executable')))
  }
}
