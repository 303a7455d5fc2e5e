// One pass of a trace through a pool: every allocation and free in the recorded order, on streams that stand for the
// recorded streams, with modelled work. Observers measure.

import type { Stream } from '../../core/order/stream.js'
import type { DeviceBuffer } from '../../core/pool/buffer.js'
import type { Pool } from '../../core/pool/pool.js'
import { type Lag, ModelledWork } from './modelled-work.js'
import { type Pace, paceOf } from './pace.js'
import type { SimulatedDriver } from './replay-device.js'
import { type ReplayDevice, simulatedDriverOf } from './replay-device.js'
import type { ReplayFailure } from './replay-result.js'
import { Action, BEFORE, framesOf, frameText, NEVER, type Trace } from './trace.js'

/** Called after each allocation and before each free; every function is optional. */
export interface ReplayPassObserver {
  allocated?(block: number, buffer: DeviceBuffer): void
  freeing?(block: number, buffer: DeviceBuffer): void
  /** after each event of the trace */
  event?(event: number): void
  /** after each round: the trace has ended, and all blocks are freed */
  round?(): void
}

/** How the pass allocates and frees; by default with the pool's own methods. */
export interface ReplayPassCalls {
  allocate(bytes: number, stream: Stream): DeviceBuffer | null
  free(buffer: DeviceBuffer): void
}

/** The duration of a pass, and its failed allocations. */
interface ReplayPassResult {
  readonly seconds: number
  readonly failures: number
  readonly firstFailure: ReplayFailure | null
}

export class ReplayPass {
  private readonly streams: readonly Stream[]
  private readonly driver: SimulatedDriver | null
  private readonly work: ModelledWork | null
  /** null on a GPU, which the pass waits for */
  private readonly pace: Pace | null
  private readonly buffers: (DeviceBuffer | null)[]
  private stopsAtFailure = false
  private failedFrom = 0
  private failures = 0
  private firstFailure: ReplayFailure | null = null

  constructor(
    private readonly trace: Trace,
    device: ReplayDevice,
    private readonly pool: Pool,
    lag: Lag,
    private readonly policy = '',
  ) {
    this.streams = trace.streams.map(() => device.createStream())
    this.driver = simulatedDriverOf(device)
    this.work =
      this.driver === null ? null : new ModelledWork(this.driver, this.streams, lag, () => device.createStream())
    this.pace = this.driver === null ? null : paceOf(trace)
    this.buffers = new Array<DeviceBuffer | null>(trace.blocks.count).fill(null)
  }

  /**
   * Whether the pool serves everything, once through the trace. Stops at the first failure. Requests that failed in
   * the recording before event `failedFrom` are not made.
   */
  serves(failedFrom: number): boolean {
    this.stopsAtFailure = true
    this.failedFrom = failedFrom
    return this.run(1).failures === 0
  }

  /**
   * Goes through the trace `repeat` times; live buffers are freed at the end of each time. A request that failed in
   * the recording is made too, and freed at once.
   */
  run(
    repeat: number,
    observer: ReplayPassObserver = {},
    calls: ReplayPassCalls = callsOf(this.pool),
  ): ReplayPassResult {
    this.pace?.begin(this.trace, this.policy)
    const start = performance.now()
    for (let round = 0; round < repeat; round++) {
      this.round(observer, calls)
      observer.round?.()
    }
    this.pace?.end()
    return {
      seconds: (performance.now() - start) / 1000,
      failures: this.failures,
      firstFailure: this.firstFailure,
    }
  }

  private round(observer: ReplayPassObserver, calls: ReplayPassCalls): void {
    const { trace, streams, work, buffers, driver, pace } = this
    const { action, block, stream, blocks, timeUs } = trace
    for (let index = 0; index < blocks.initial; index++) {
      if (blocks.freeRequestedAt[index] !== BEFORE) this.allocate(-1, index, observer, calls)
      pace?.step()
    }
    for (let event = 0; event < trace.events; event++) {
      if (this.stopsAtFailure && this.failures > 0) break
      const index = block[event]
      if (event > 0) driver?.passTime(Math.max(0, timeUs[event] - timeUs[event - 1]) / 1e6)
      if (action[event] === Action.alloc) {
        work?.tick(stream[event])
        this.allocate(event, index, observer, calls)
        work?.submit(stream[event])
      } else if (action[event] === Action.freeRequested) {
        work?.tick(stream[event])
        const buffer = buffers[index]
        if (buffer !== null) {
          observer.freeing?.(index, buffer)
          if (work !== null && this.completesLater(index, event)) buffer.recordUse(work.beginUse(index))
          calls.free(buffer)
          buffers[index] = null
        }
      } else if (action[event] === Action.freeCompleted) {
        work?.tick(stream[event])
        work?.endUse(index)
      } else if (action[event] === Action.outOfMemory && event >= this.failedFrom) {
        const buffer = this.request(event, trace.bytes[event], stream[event], calls)
        if (buffer !== null) calls.free(buffer)
      }
      observer.event?.(event)
      pace?.step()
    }
    for (let index = 0; index < blocks.count; index++) {
      const buffer = buffers[index]
      if (buffer !== null) {
        observer.freeing?.(index, buffer)
        buffer.free()
        buffers[index] = null
      }
      work?.endUse(index)
      pace?.step()
    }
    if (streams.length === 1 && work !== null) return
    for (const each of streams) {
      each.synchronize()
      pace?.step()
    }
  }

  /**
   * Whether a block is in use on another stream after its free, until the free completes. Recordings without
   * completed frees do not tell.
   */
  private completesLater(index: number, freeRequestedAt: number): boolean {
    const completedAt = this.trace.blocks.freeCompletedAt[index]
    if (completedAt === NEVER) return this.trace.saysCompleted
    return completedAt > freeRequestedAt + 1 && this.trace.action[completedAt] === Action.freeCompleted
  }

  private allocate(event: number, index: number, observer: ReplayPassObserver, calls: ReplayPassCalls): void {
    const { blocks } = this.trace
    const buffer = this.request(event, blocks.bytes[index], blocks.stream[index], calls)
    this.buffers[index] = buffer
    if (buffer !== null) observer.allocated?.(index, buffer)
  }

  /** A buffer, or null with the failure noted. */
  private request(event: number, requested: number, number: number, calls: ReplayPassCalls): DeviceBuffer | null {
    const { trace, streams } = this
    // PyTorch gave a request of 0 bytes a block of the least size.
    const bytes = Math.max(1, requested)
    const stream = streams[number]
    const buffer = calls.allocate(bytes, stream)
    if (buffer !== null) return buffer
    this.failures++
    this.firstFailure ??= {
      event,
      bytes,
      stream: trace.streams[number],
      message: this.stopsAtFailure ? '' : failureMessage(this.pool, bytes, stream),
      frames: event === -1 ? [] : framesOf(trace, event).map(frameText),
    }
    return null
  }
}

export function callsOf(pool: Pool): ReplayPassCalls {
  return {
    allocate: (bytes, stream) => pool.tryAllocate(bytes, stream),
    free: buffer => buffer.free(),
  }
}

/** The pool's own message about a request that it has just refused. */
function failureMessage(pool: Pool, bytes: number, stream: Stream): string {
  try {
    pool.allocate(bytes, stream).free()
    return 'refused, though a moment later there was room'
  } catch (error) {
    return (error as Error).message
  }
}
