// One pass of a trace: every allocation and free in the recorded order, through a pool on a device (pool-pass.ts) or
// through a model of an allocator (pytorch/pytorch-replay.ts). Observers measure.

import { shortened } from '../../core/base/shown-text.js'
import { CallSites, siteName } from './frames/call-sites.js'
import type { LatencyMeter } from './latency.js'
import type { Pace } from './pace.js'
import type { ReplayFailure } from './replay-result.js'
import { MOST_IN_FIGURES, type Trace } from './trace.js'

/** Called after each allocation and before each free; every function is optional. `Held` stands for a block. */
export interface ReplayPassObserver<Held> {
  allocated?(block: number, held: Held): void
  freeing?(block: number, held: Held): void
  /** after each event of the trace */
  event?(event: number): void
  /** after each round: the trace has ended, and all blocks are freed */
  round?(): void
}

/** How a pass goes through its trace; every option may be left out. */
export interface PassOptions<Held> {
  /** how often; default 1. Live blocks are freed at the end of each time. */
  readonly repeat?: number
  /** from this event on, requests that failed in the recording are made too, and freed at once; default 0 */
  readonly failedFrom?: number
  /** whether to stop at the first failure; default false */
  readonly stopsAtFailure?: boolean
  readonly observer?: ReplayPassObserver<Held>
  /** times each call */
  readonly meter?: LatencyMeter | null
}

/** The duration of a pass, and its failed allocations. */
export interface PassResult {
  readonly seconds: number
  readonly failures: number
  readonly firstFailure: ReplayFailure | null
}

export abstract class ReplayPass<Held extends object> {
  /** by block number; null for a block that is not live */
  protected readonly held: (Held | null)[]
  protected observer: ReplayPassObserver<Held> = {}
  protected failedFrom = 0
  private meter: LatencyMeter | null = null
  private stopsAtFailure = false
  private failures = 0
  private firstFailure: ReplayFailure | null = null

  /** `name` is that of the policy, for an error about a slow pass. Without a `pace` the pass may take any time. */
  constructor(
    protected readonly trace: Trace,
    protected readonly pace: Pace | null,
    private readonly name: string,
  ) {
    this.held = new Array<Held | null>(trace.blocks.count).fill(null)
  }

  /** Goes through the trace. */
  run(options: PassOptions<Held> = {}): PassResult {
    const { repeat = 1, failedFrom = 0, stopsAtFailure = false, observer = {}, meter = null } = options
    const { pace } = this
    this.failedFrom = failedFrom
    this.stopsAtFailure = stopsAtFailure
    this.observer = observer
    this.meter = meter
    pace?.begin(this.trace, this.name, repeat)
    const start = performance.now()
    for (let round = 0; round < repeat; round++) {
      this.round(round)
      observer.round?.()
    }
    pace?.end()
    const seconds = (performance.now() - start) / 1000
    return { seconds, failures: this.failures, firstFailure: this.firstFailure }
  }

  private round(round: number): void {
    const { trace, held, observer, pace } = this
    this.begin(round)
    for (let block = 0; block < trace.blocks.initial; block++) {
      if (held[block] === null) this.allocateInitial(block)
      pace?.step()
    }
    this.beginEvents(round)
    for (let event = 0; event < trace.events; event++) {
      if (this.stopsAtFailure && this.failures > 0) break
      this.apply(event)
      observer.event?.(event)
      pace?.step()
    }
    for (let block = 0; block < held.length; block++) {
      this.end(block)
      pace?.step()
    }
    this.endRound()
  }

  /** Before the blocks of a round. */
  protected begin(_round: number): void {}

  /** Allocates a block from before the first event. */
  protected abstract allocateInitial(block: number): void

  /** Before the events of a round. */
  protected beginEvents(_round: number): void {}

  protected abstract apply(event: number): void

  /** Frees a block at the end of a round, if it is live. */
  protected abstract end(block: number): void

  protected abstract endRound(): void

  /** Makes a request; null without room. `stream` and `pool` are numbers of the trace. */
  protected abstract take(bytes: number, stream: number, pool: number): Held | null

  protected abstract give(held: Held): void

  /** Why a request was just refused. */
  protected abstract refusal(bytes: number, stream: number): string

  /** Makes a request, and notes its time, or that it failed. `event` is -1 for a block from before the first event. */
  protected request(event: number, bytes: number, stream: number, pool: number): Held | null {
    const { meter, trace } = this
    const start = meter === null ? 0 : meter.start()
    const held = this.take(bytes, stream, pool)
    meter?.allocated(start)
    if (held !== null) return held
    this.failures++
    this.firstFailure ??= {
      event,
      bytes,
      stream: trace.streams[stream],
      message: this.stopsAtFailure ? '' : this.refusal(bytes, stream),
      frames: event === -1 ? [] : framesAt(trace, event),
    }
    return null
  }

  /** Frees what a request got, and notes the time. */
  protected free(held: Held): void {
    const { meter } = this
    const start = meter === null ? 0 : meter.start()
    this.give(held)
    meter?.freed(start)
  }
}

function framesAt(trace: Trace, event: number): string[] {
  const { frames, letters } = MOST_IN_FIGURES
  const calls = CallSites.of(trace.stacks).callsOf(trace.stack[event])
  return calls
    .slice(0, frames)
    .map(call => siteName({ ...call, file: shortened(call.file, letters), name: shortened(call.name, letters) }))
}
