// The replay of a model of PyTorch's allocator: one pass for all figures, and five that time each call. The model gives
// memory back where it decides to and where the program did. One more pass, which follows the recording wherever it
// gave memory back and makes no failed request, compares the addresses.

import { LATENCY_PASSES, LatencyMeter } from '../latency.js'
import { PlacementCollector } from '../placements/placements.js'
import type { Settings } from '../replay-options.js'
import type { Policy, ReplayRun } from '../replay-result.js'
import { figuresOf } from '../run-figures.js'
import type { Trace } from '../trace.js'
import { pytorchSettingsOf, recordedPytorchSettings } from './named-settings.js'
import { modelWithin } from './program-releases.js'
import { type ModelOptions, replayPytorchPolicy } from './pytorch-replay.js'

/** A policy that is a model. On a GPU its driver calls get no time, because times of the GPU stand beside it. */
export class PytorchRun {
  constructor(
    private readonly policy: Policy,
    private readonly trace: Trace,
    private readonly settings: Settings,
  ) {}

  /** The figures of all passes. `progress` is told the share that is done. */
  async figures(simulated: boolean, progress: (share: number) => void): Promise<Partial<ReplayRun>> {
    const { policy, trace } = this
    const { capacityBytes, repeat, latency, placements } = this.settings
    const passes = 1 + (latency ? LATENCY_PASSES : 0)
    const model = modelOf(policy, trace, capacityBytes)
    const meter = new LatencyMeter()
    for (let run = 0; run < passes - 1; run++) {
      meter.startPass()
      replayPytorchPolicy(trace, { ...model, repeat, meter, failedFrom: 0 })
      progress((run + 1) / passes)
    }
    const collector = placements ? new PlacementCollector(trace) : null
    const result = replayPytorchPolicy(trace, { ...model, repeat, collector, failedFrom: 0 })
    progress(1)
    const { settings = {} } = model
    const placement = result.placement && replayPytorchPolicy(trace, { settings }).placement
    const { failures, firstFailure } = result
    const rounds = simulated ? result.rounds : result.rounds.map(round => ({ ...round, modelledDeviceSeconds: null }))
    return {
      ...figuresOf(trace, repeat, { ...result, rounds, meter }),
      failures,
      firstFailure,
      placement,
      placements: collector?.placements() ?? null,
    }
  }

  /**
   * Whether the model serves everything within a capacity, with the requests that failed in the recording from event
   * `failedFrom` on.
   */
  serves(capacityBytes: number, failedFrom: number): boolean {
    const { policy, trace } = this
    const model = modelOf(policy, trace, capacityBytes)
    return replayPytorchPolicy(trace, { ...model, failedFrom, stopsAtFailure: true }).failures === 0
  }
}

/** The options of a model: the settings it names, or those of the recording, within a capacity. */
function modelOf(policy: Policy, trace: Trace, capacityBytes: number): ModelOptions {
  const { expandableSegments: _, ...recorded } = recordedPytorchSettings(trace)
  const asNamed = policy === 'pytorch-expandable' ? { ...recorded, expandableSegments: true } : recorded
  const settings = pytorchSettingsOf(policy) ?? asNamed
  return modelWithin(trace, settings, capacityBytes)
}
