// During a capture the driver records the work of its streams instead of running it. A capture has clocks of its own,
// which tick for events that are recorded on captured streams. They follow which work of the graph comes before
// which.
//
// For the clocks of the device a captured stream is like a closed one: a last mark covers everything submitted before
// the capture, and the stream gets no further mark until the capture ends.

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { CudaError, DeviceLostError, PoolError } from '../base/errors.js'
import { isUnwantedPromise } from '../base/thrown.js'
import {
  CU_STREAM_CAPTURE_MODE_GLOBAL,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
  CU_STREAM_LEGACY_DEFAULT,
  CU_STREAM_NON_BLOCKING,
} from '../driver/constants.js'
import type { Clocks, OpenCapture } from './clocks.js'
import { Graph } from './graph.js'
import { GraphMemory, type LaunchRule } from './graph-memory.js'
import type { Holding } from './holding.js'
import type { OrderedStream } from './ordered-stream.js'
import { enterRelaxed, leaveRelaxed } from './relaxed.js'
import { VectorClocks } from './vector-clocks.js'

const MODES = {
  global: CU_STREAM_CAPTURE_MODE_GLOBAL,
  threadLocal: CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
  relaxed: CU_STREAM_CAPTURE_MODE_RELAXED,
} as const

/**
 * While a stream is captured, the driver refuses calls that might break the capture, such as cuMemAlloc: calls of
 * every thread ('global'), of this thread only ('threadLocal'), or none ('relaxed'). It never refuses the calls of
 * this library.
 */
export type CaptureMode = keyof typeof MODES

/** The part of `Stream` that captures use. */
export interface CapturableStream extends OrderedStream {
  readonly clocks: Clocks
  /** the capture that the stream is part of */
  capture: Capture | null
  /**
   * Throws PoolError, in the name of `call`, for a stream that cannot be captured: the default stream, or another
   * thread's.
   */
  checkCapturable(call: string): void
}

/** Memory that has a part in the end of a capture. */
export interface CaptureMember {
  /** Throws PoolError if the capture cannot end now. */
  checkEnd(capture: Capture): void
  /** No more work is captured, and the streams are still those of the capture. Without a graph it has failed. */
  end(capture: Capture, hasGraph: boolean): void
}

/** Graphs that share memory, one of which a capture makes. */
export interface CaptureGroup extends CaptureMember {
  /** the order of their launches */
  readonly order: LaunchRule
  /** A capture is about to begin, in the name of `call`. Returns the number of its graph. */
  begin(capture: Capture, call: string): number
}

/** captures that this thread has begun */
let captures = 0

export class Capture extends VectorClocks implements OpenCapture {
  /** tells the captures of a thread apart */
  readonly id = ++captures
  /** true once the streams run their work again */
  ended = false
  /** true once it has ended without a graph */
  failed = false
  /** the memory that pools keep for the capture */
  readonly holdings = new Set<Holding>()
  /** the group, and other memory that its graphs share */
  readonly members = new Set<CaptureMember>()
  /** of a graph in a group: its number there */
  number = 0
  /** of the graph */
  memory!: GraphMemory
  private readonly streams = new Set<CapturableStream>()
  blocksDefault = false

  private constructor(
    readonly origin: CapturableStream,
    /** another library begins and ends the capture */
    private readonly announced: boolean,
    readonly group: CaptureGroup | null,
  ) {
    super()
    if (group !== null) this.members.add(group)
  }

  /**
   * Work submitted to the open `stream` is recorded from now on. Throws TypeError, in the name of `call`, for an
   * unknown mode.
   */
  static begin(
    call: string,
    stream: CapturableStream,
    mode: CaptureMode = 'global',
    group: CaptureGroup | null = null,
  ): void {
    if (typeof mode !== 'string' || !Object.hasOwn(MODES, mode)) {
      throw new WrongTypeError(`${call}: mode must be ${Object.keys(MODES).join(', ')}, not ${describe(mode)}`)
    }
    const capture = new Capture(stream, false, group)
    capture.start(call, () => stream.context.activate().cuStreamBeginCapture(stream.handle, MODES[mode]))
  }

  /** Another library is about to begin a capture of the open `stream`. */
  static announce(stream: CapturableStream, group: CaptureGroup | null = null): void {
    if (group?.order.isShared) {
      throw new PoolError(
        'beginCapture: another library cannot launch graphs of a group that threads share, as no other thread may ' +
          'launch meanwhile; make the group in a pool of one thread',
        'ERR_NOT_SUPPORTED',
      )
    }
    if (stream.context.activate().cuStreamIsCapturing(stream.handle)) {
      throw new PoolError(
        'beginCapture: the stream is captured already; announce it before the capture begins',
        'ERR_STREAM_CAPTURED',
      )
    }
    new Capture(stream, true, group).start('beginCapture', () => {})
  }

  /** `stream` is about to wait for captured work, and so becomes part of the capture. */
  join(stream: CapturableStream): void {
    if (stream.handle === CU_STREAM_LEGACY_DEFAULT) {
      throw new PoolError('wait: the default stream cannot be captured; create another one for captured work')
    }
    stream.checkCapturable('wait')
    if (this.isOrderedWithLegacy(stream)) this.block(stream)
    stream.suspend()
    stream.capture = this
    this.streams.add(stream)
    this.includeSlot(stream.lastSlot)
    for (const observer of stream.clocks.captureObservers) observer.joined(stream)
  }

  /** Undoes `join` after the driver refused the wait. */
  leave(stream: CapturableStream): void {
    this.streams.delete(stream)
    stream.capture = null
    stream.resume()
  }

  /**
   * Ends the capture on the stream where it began. Throws the driver's CudaError, for example if a stream was not
   * joined again. The graph keeps `result` for its user.
   */
  end<R>(result: R): Graph<R> {
    const { clocks } = this.origin
    this.checkEnd()
    const graph = this.endOnDriver()
    let executable: number
    const driver = clocks.context.activate()
    try {
      executable = driver.cuGraphInstantiate(graph)
    } catch (error) {
      this.finish(false)
      throw error
    } finally {
      clocks.context.discard(() => driver.cuGraphDestroy(graph))
    }
    this.finish(true)
    return new Graph(clocks, executable, this.memory, this.origin, result)
  }

  /**
   * Ends the capture without a graph. Throws CudaError if the driver refuses; the capture then goes on, and can be
   * aborted again.
   */
  abort(): void {
    if (this.ended) return
    if (!this.announced) {
      let graph: number
      try {
        graph = this.endOnDriver()
      } catch (error) {
        if (this.ended) return // a call had broken the capture
        throw error
      }
      this.origin.context.discard(driver => driver.cuGraphDestroy(graph))
    }
    this.finish(false)
  }

  /** The other library has ended the capture that was announced. */
  endAnnounced(): GraphMemory {
    if (!this.announced) {
      throw new PoolError('endCapture: the capture was not announced by a pool; call stream.endCapture()')
    }
    const { handle, context } = this.origin
    if (context.activate().cuStreamIsCapturing(handle)) {
      throw new PoolError('endCapture: the stream is still captured; end the capture first', 'ERR_STREAM_CAPTURED')
    }
    this.checkEnd()
    this.finish(true)
    return this.memory
  }

  private checkEnd(): void {
    for (const member of this.members) member.checkEnd(this)
  }

  private start(call: string, begin: () => void): void {
    const { context, clocks } = this.origin
    enterRelaxed(context.activate())
    clocks.captures.add(this)
    try {
      this.number = this.group?.begin(this, call) ?? 0 // first, since pools that hear of the stream ask for the group
      this.memory = new GraphMemory(clocks, this.holdings, this.group?.order ?? null, this.number)
      this.join(this.origin)
      begin()
    } catch (error) {
      this.finish(false)
      throw error
    }
  }

  private endOnDriver(): number {
    if (this.announced) {
      throw new PoolError(
        'endCapture: the capture was announced; end it where it began, then call pool.endCapture(stream)',
      )
    }
    const { handle, context } = this.origin
    try {
      return context.activate().cuStreamEndCapture(handle)
    } catch (error) {
      // The driver ends a capture even if it refuses the graph. Only if it refused the call itself does the capture
      // go on.
      if (!this.isCapturing()) this.finish(false)
      throw error
    }
  }

  private isCapturing(): boolean {
    let capturing = true
    try {
      capturing = this.origin.context.activate().cuStreamIsCapturing(this.origin.handle)
    } catch (error) {
      if (error instanceof DeviceLostError) return false
      if (!(error instanceof CudaError)) throw error
    }
    return capturing
  }

  private finish(hasGraph: boolean): void {
    const { context, clocks } = this.origin
    for (const member of this.members) member.end(this, hasGraph)
    this.ended = true
    this.failed = !hasGraph
    for (const stream of this.streams) this.leave(stream)
    clocks.captures.delete(this)
    const blocking = [...clocks.captures].find(other => other.blocksDefault) ?? null
    for (const stream of clocks.registry.suspended.values()) {
      if (stream.blockedBy !== this) continue
      stream.blockedBy = blocking
      if (blocking === null) stream.resume()
    }
    leaveRelaxed(context.driver)
    if (hasGraph) return
    for (const holding of this.holdings) holding.release([])
  }

  private isOrderedWithLegacy(stream: CapturableStream): boolean {
    if (stream.owned) return false
    return (stream.context.activate().cuStreamGetFlags(stream.handle) & CU_STREAM_NON_BLOCKING) === 0
  }

  private block({ clocks }: CapturableStream): void {
    this.blocksDefault = true
    const legacy = clocks.streams.find(stream => stream?.handle === CU_STREAM_LEGACY_DEFAULT)
    if (legacy === null || legacy === undefined) return
    legacy.suspend()
    legacy.blockedBy = this
  }
}

/** A stream whose capture ends where it began. */
interface CapturedStream extends CapturableStream {
  endCaptureWith<R>(result: R): Graph<R>
  abortCapture(): void
}

/** Captures what `work` submits to `stream`, once `begin` has begun the capture; see `device.capture`. */
export function captureWork<R>(stream: CapturedStream, work: () => R, begin: () => void): Graph<R> {
  if (typeof work !== 'function') throw new WrongTypeError(`capture: work must be a function, not ${describe(work)}`)
  begin()
  try {
    const result = work()
    if (isUnwantedPromise(result)) {
      throw new WrongTypeError(
        'capture: work must not be asynchronous; call stream.beginCapture() and endCapture() instead',
      )
    }
    return stream.endCaptureWith(result)
  } catch (error) {
    try {
      if (stream.capture?.origin === stream) stream.abortCapture()
    } catch (second) {
      if (!(second instanceof CudaError)) throw second // the first error says more; the stream stays captured
    }
    throw error
  }
}
