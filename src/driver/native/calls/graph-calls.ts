// Captures and graphs of libcuda.

import { exact, int } from '../../../libraries/arguments.js'
import { CU_STREAM_CAPTURE_STATUS_NONE } from '../../constants.js'
import { NO_CONTEXT } from './bound-library.js'
import { StreamCalls } from './stream-calls.js'

export class GraphCalls extends StreamCalls {
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
