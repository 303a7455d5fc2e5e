// Ends replays that take out of all proportion to their recording, such as one of thousands of streams or private
// pools. The time of the passes beyond an ample allowance adds up, and may be two seconds; quick passes make up for
// slow ones. A replay on a GPU has no such limit, because it waits for the GPU.

import { SlowReplayError } from '../base/errors.js'
import { Action, type Trace } from './trace.js'

/** The time allowed to a pass: to warm up, and for each step, which is an event or a block. */
const [MS_A_PASS, MS_A_STEP] = [20, 0.000_75]
/** The time that all passes of a recording may take beyond that: in any case, and for each of its steps. */
const [EXCESS_MS, EXCESS_MS_A_STEP] = [3000, 0.02]
/** The clocks are read about once a millisecond, and at least once in 1,024 steps. */
const [CHECK_MS, MOST_UNCHECKED] = [1, 1024]

/** The time that the passes of one recording take. */
export class Pace {
  private policy = ''
  private excessMs = 0
  private steps = 0
  private checkAt = 0
  private unchecked = 1
  private lastMs = 0
  /** On a busy machine the time passes faster than that of the processor, which other threads of the program use. */
  private wallMs = 0
  private cpuMs = 0

  private readonly mostExcessMs: number

  constructor(private readonly trace: Trace) {
    this.mostExcessMs = EXCESS_MS + (trace.events + trace.blocks.count) * EXCESS_MS_A_STEP
  }

  /** A pass begins, under this policy. */
  begin(policy: string): void {
    this.policy = policy
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
    if (mayBeSlow && this.excess() > this.mostExcessMs) throw new SlowReplayError(this.message())
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

  private message(): string {
    const { file, streams, pools, events } = this.trace
    const most = `${mostBlocks(this.trace)} blocks at once, ${streams.length} streams and ${pools.length - 1} private pools`
    return (
      `${file}: its replay under ${this.policy} takes too long for ${events} events: it has ${most}; ` +
      'leave this policy out (--policy), or take a part of the recording (report --last 5k)'
    )
  }
}

const paces = new WeakMap<Trace, Pace>()

/** The pace of all passes of a trace. */
export function paceOf(trace: Trace): Pace {
  const pace = paces.get(trace) ?? new Pace(trace)
  paces.set(trace, pace)
  return pace
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
