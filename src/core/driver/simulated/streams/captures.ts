// Captures and graphs: streams that record work instead of running it. A capture is a set of nodes with their
// dependencies. Each of its streams remembers the dependencies of its next node. A call that breaks one of CUDA's
// rules is refused with CUDA's code, and invalidates the capture, which can then only be ended. calls.ts uses it.

import type { CudaError } from '../../../base/errors.js'
import {
  CU_STREAM_CAPTURE_MODE_GLOBAL,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_LEGACY_DEFAULT,
  RESULT,
} from '../../constants.js'
import type { CallName } from '../../driver.js'
import { CALL, type CallInterceptor } from '../call-interceptor.js'
import type { SimulatedContext } from '../context.js'
import { HandleTable } from '../handle-table.js'
import type { CapturedNode, StreamCapture, StreamGroup, StreamQueue } from './stream-queue.js'

/** Calls that are refused while a capture is open that they may break, unless the thread is in relaxed mode. */
const UNSAFE: readonly CallName[] = [
  'cuMemAlloc',
  'cuMemAllocManaged',
  'cuMemFree',
  'cuMemHostRegister',
  'cuMemHostUnregister',
  'cuMemcpyHtoD',
  'cuMemcpyDtoH',
  'cuMemcpyDtoD',
  'cuMemPoolCreate',
  'cuMemPoolDestroy',
  'cuMemPoolTrimTo',
  'cuStreamQuery',
  'cuStreamSynchronize',
  'cuEventQuery',
  'cuEventSynchronize',
  'cuModuleLoadData',
  'cuModuleUnload',
]

/** A graph that can be launched. The next launch comes after the position where the last launch ends. */
interface ExecutableGraph {
  readonly context: SimulatedContext
  readonly nodes: readonly CapturedNode[]
  lastQueue: StreamQueue | null
  lastPosition: number
}

interface Graph {
  readonly context: SimulatedContext
  readonly nodes: readonly CapturedNode[]
}

/** The open captures and the graphs of all contexts. */
export class Captures {
  private readonly open = new Set<StreamCapture>()
  private readonly unsafe = new Uint8Array(Object.keys(CALL).length)
  private readonly graphs = new HandleTable<Graph>(0x8000_0000)
  private readonly executables = new HandleTable<ExecutableGraph>(0x9000_0000)

  constructor(private readonly interceptor: CallInterceptor) {
    for (const name of UNSAFE) this.unsafe[CALL[name]] = 1
  }

  /** Refuses a call that may break a capture. */
  guard(call: number): void {
    const { thread } = this.interceptor
    if (this.open.size === 0 || this.unsafe[call] === 0 || thread.captureMode === CU_STREAM_CAPTURE_MODE_RELAXED) return
    const broken = [...this.open].filter(capture => {
      if (capture.thread === thread) return capture.mode !== CU_STREAM_CAPTURE_MODE_RELAXED
      return capture.mode === CU_STREAM_CAPTURE_MODE_GLOBAL && thread.captureMode === CU_STREAM_CAPTURE_MODE_GLOBAL
    })
    if (broken.length === 0) return
    throw this.breakAll(broken, RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 'the call may break a capture')
  }

  /** Whether a stream of `context` is captured, or this thread captures any stream. */
  isOpenFor(context: StreamGroup): boolean {
    const { thread } = this.interceptor
    return [...this.open].some(capture => capture.thread === thread || capture.origin.group === context)
  }

  /** Refuses new work for an invalidated capture, or for the legacy stream beside a captured blocking stream. */
  checkSubmit(queue: StreamQueue): void {
    if (this.open.size === 0) return
    if (queue.capture?.invalidated === true) {
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 'the capture was invalidated before')
    }
    if (queue.kind === 'legacy') this.checkLegacy(queue.group)
  }

  /** Refuses an operation `what` that a captured stream cannot do. */
  checkNotCaptured(queue: StreamQueue, what: string): void {
    if (queue.capture === null) return
    throw this.breakAll([queue.capture], RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, `${what} of a captured stream`)
  }

  /** Refuses a wait for a whole context if one of its streams is captured. */
  checkIdle(context: StreamGroup): void {
    const captures = [...this.open].filter(capture => capture.origin.group === context)
    if (captures.length === 0) return
    throw this.breakAll(captures, RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 'a stream is captured')
  }

  begin(queue: StreamQueue, stream: number, mode: number): void {
    if (stream === CU_STREAM_LEGACY_DEFAULT) {
      throw this.interceptor.refuse(
        RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        'the legacy stream cannot be captured',
      )
    }
    if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE)
    if (queue.capture !== null)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_ILLEGAL_STATE, 'the stream is captured already')
    const capture: StreamCapture = {
      origin: queue,
      mode,
      nodes: [],
      thread: this.interceptor.thread,
      streams: new Set(),
      invalidated: false,
      ended: false,
    }
    this.open.add(capture)
    join(queue, capture, [])
  }

  /** Ends the capture that began on `queue`; returns the handle of the graph. */
  end(queue: StreamQueue, context: SimulatedContext): number {
    const capture = queue.capture
    if (capture === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_ILLEGAL_STATE, 'the stream is not captured')
    if (capture.origin !== queue) {
      throw this.breakAll([capture], RESULT.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 'the capture began on another stream')
    }
    if (capture.mode !== CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread !== this.interceptor.thread) {
      throw this.interceptor.refuse(
        RESULT.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        'the capture began in another thread',
      )
    }
    const joined = ancestorsOf(queue.tails)
    const unjoined = [...capture.streams].some(stream => stream.tails.some(node => !joined.has(node)))
    this.drop(capture)
    if (capture.invalidated) throw this.interceptor.refuse(RESULT.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    if (unjoined) {
      throw this.interceptor.refuse(
        RESULT.CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        'a stream was not joined to where it began',
      )
    }
    return this.graphs.add({ context, nodes: capture.nodes })
  }

  /**
   * A stream is destroyed, by any thread. A capture that began on it ends; a capture that it joined becomes invalid.
   */
  leave(queue: StreamQueue): void {
    const { capture } = queue
    if (capture?.origin === queue) this.drop(capture)
    else if (capture !== null) capture.invalidated = true
  }

  /** Later work of `queue` depends on the captured nodes `tails`, so the stream joins their capture. */
  follow(queue: StreamQueue, capture: StreamCapture, tails: readonly CapturedNode[]): void {
    if (capture.ended)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_CAPTURED_EVENT, 'the capture of the event has ended')
    if (queue.kind === 'legacy') {
      throw this.breakAll([capture], RESULT.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 'the legacy stream cannot be captured')
    }
    if (queue.capture === null) join(queue, capture, tails)
    else if (queue.capture === capture) queue.tails = [...new Set([...queue.tails, ...tails])]
    else
      throw this.breakAll([capture, queue.capture], RESULT.CUDA_ERROR_STREAM_CAPTURE_MERGE, 'two captures would merge')
  }

  /** Refuses a wait of a captured stream for work outside of its capture. */
  refuseIsolated(capture: StreamCapture): never {
    const fact = 'the event was recorded outside of the capture'
    throw this.breakAll([capture], RESULT.CUDA_ERROR_STREAM_CAPTURE_ISOLATION, fact)
  }

  /** Refuses a query of, or a wait for, an event of captured work. */
  refuseCaptured(capture: StreamCapture): never {
    throw this.breakAll([capture], RESULT.CUDA_ERROR_CAPTURED_EVENT, 'the event was recorded in a capture')
  }

  instantiate(graph: number): number {
    const { context, nodes } = this.graphs.get(graph) ?? this.refuseHandle('graph')
    return this.executables.add({ context, nodes, lastQueue: null, lastPosition: 0 })
  }

  destroyGraph(graph: number): void {
    if (this.graphs.remove(graph) === undefined) this.refuseHandle('graph')
  }

  executable(handle: number): ExecutableGraph {
    return this.executables.get(handle) ?? this.refuseHandle('executable graph')
  }

  destroyExecutable(handle: number): void {
    if (this.executables.remove(handle) === undefined) this.refuseHandle('executable graph')
  }

  /** Removes the captures and graphs of a context that ends. */
  removeOf(context: SimulatedContext): void {
    for (const capture of this.open) if (capture.origin.group === context) this.drop(capture)
    this.graphs.removeWhere(graph => graph.context === context)
    this.executables.removeWhere(executable => executable.context === context)
  }

  private checkLegacy(group: StreamGroup): void {
    const implied = [...this.open].filter(({ streams }) =>
      [...streams].some(stream => stream.group === group && stream.kind === 'blocking'),
    )
    if (implied.length === 0) return
    const fact = 'the legacy stream is ordered with a stream that is captured'
    throw this.breakAll(implied, RESULT.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, fact)
  }

  private drop(capture: StreamCapture): void {
    this.open.delete(capture)
    capture.ended = true
    for (const stream of capture.streams) {
      stream.capture = null
      stream.tails = []
    }
  }

  private breakAll(captures: readonly StreamCapture[], code: number, fact: string): CudaError {
    for (const capture of captures) capture.invalidated = true
    return this.interceptor.refuse(code, fact)
  }

  private refuseHandle(what: string): never {
    throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, `no such ${what}`)
  }
}

/** The nodes in `tails`, and all nodes that they depend on. */
export function ancestorsOf(tails: readonly CapturedNode[]): Set<CapturedNode> {
  const found = new Set<CapturedNode>()
  const left = [...tails]
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    if (found.has(node)) continue
    found.add(node)
    left.push(...node.after)
  }
  return found
}

function join(queue: StreamQueue, capture: StreamCapture, tails: readonly CapturedNode[]): void {
  queue.capture = capture
  queue.tails = [...tails]
  capture.streams.add(queue)
}
