// Ends replays that take out of all proportion to their recording, such as one of thousands of streams or private
// pools. The time of the passes beyond an ample allowance adds up, and may be some seconds; quick passes make up for
// slow ones. A replay on a GPU has no such limit, because it waits for the GPU.

import { SlowReplayError } from '../../core/base/errors.js'
import { Action, type Trace } from './trace.js'

/** The time allowed to a pass: to warm up, and for each step, which is an event, a block or a first segment. */
const [MS_A_PASS, MS_A_STEP] = [15, 0.000_75]
/** The time that all passes may take beyond that: in any case, and for each step of the recordings. */
const [EXCESS_MS, EXCESS_MS_A_STEP] = [1500, 0.01]
/** The clocks are read about once a millisecond, and at least once in 1,024 steps. */
const [CHECK_MS, MOST_UNCHECKED] = [1, 1024]

/** The time that the passes of one recording, or of those of a page, take. */
export class Pace {
  private pass: { readonly trace: Trace; readonly policy: string } | null = null
  private excessMs = 0
  private steps = 0
  private checkAt = 0
  private unchecked = 1
  private lastMs = 0
  /** On a busy machine the time passes faster than that of the processor, which other threads of the program use. */
  private wallMs = 0
  private cpuMs = 0
  private readonly excessMsARound: number
  private mostExcessMs = 0
  /** how many recordings share the time */
  readonly recordings: number

  constructor(traces: readonly Trace[]) {
    this.recordings = traces.length
    const steps = traces.reduce(
      (sum, trace) => sum + trace.events + trace.blocks.count + trace.initialSegments.length,
      0,
    )
    this.excessMsARound = EXCESS_MS + steps * EXCESS_MS_A_STEP
  }

  /** A pass of a recording begins, under this policy. A pass of several rounds may take that much longer. */
  begin(trace: Trace, policy: string, rounds: number): void {
    this.pass = { trace, policy }
    this.mostExcessMs = rounds * this.excessMsARound
    this.steps = 0
    this.checkAt = this.unchecked = 1
    this.lastMs = this.wallMs = performance.now()
    this.cpuMs = cpuMs()
  }

  /** Counts a step of the pass. Throws SlowReplayError if the passes have taken too long. */
  step(): void {
    if (++this.steps >= this.checkAt) this.check()
  }

  /** The pass ends. */
  end(): void {
    this.excessMs = this.excess()
  }

  private check(): void {
    const now = performance.now()
    // Some systems take long to tell the time of the processor.
    const mayBeSlow = this.excessMs + now - this.wallMs > this.mostExcessMs
    if (mayBeSlow && this.excess() > this.mostExcessMs) {
      this.end() // the other recordings of a page have that much less
      throw new SlowReplayError(messageOf(this.pass!))
    }
    this.unchecked = now - this.lastMs < CHECK_MS ? Math.min(2 * this.unchecked, MOST_UNCHECKED) : 1
    this.checkAt = this.steps + this.unchecked
    this.lastMs = now
  }

  /** The time of all passes beyond their allowance, to this moment. */
  private excess(): number {
    const allowed = MS_A_PASS + this.steps * MS_A_STEP
    const wall = performance.now() - this.wallMs - allowed
    return Math.max(0, this.excessMs + (wall <= 0 ? wall : Math.min(wall, cpuMs() - this.cpuMs - allowed)))
  }
}

const paces = new WeakMap<Trace, Pace>()

/** The pace of all passes of a trace. */
export function paceOf(trace: Trace): Pace {
  return paces.get(trace) ?? sharePace([trace])
}

/** One pace for the passes of all these traces from now on. */
export function sharePace(traces: readonly Trace[]): Pace {
  const pace = new Pace(traces)
  for (const trace of traces) paces.set(trace, pace)
  return pace
}

function messageOf({ trace, policy }: { readonly trace: Trace; readonly policy: string }): string {
  const { file, streams, pools, events } = trace
  const most = `${mostBlocks(trace)} blocks at once, ${streams.length} streams and ${pools.length - 1} private pools`
  return (
    `${file}: its replay under ${policy} takes too long for ${events} events: it has ${most}; ` +
    'leave this policy out (--policy), or take a part of the recording (report --last 5k)'
  )
}

function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

function mostBlocks({ action, blocks, events }: Trace): number {
  let live = blocks.initial
  let most = live
  for (let event = 0; event < events; event++) {
    if (action[event] === Action.alloc) most = Math.max(most, ++live)
    else if (action[event] === Action.freeRequested) live--
  }
  return most
}
