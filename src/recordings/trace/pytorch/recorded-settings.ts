// The settings that a recording was made with, as the models take them.

import type { Trace } from '../trace.js'
import { Action } from '../trace.js'
import { type PytorchSettings, understandPytorchSettings } from './model/pytorch-settings.js'

/**
 * The settings of a recording, as far as this version knows them; `unknownPytorchSettings` names the others. Whether
 * segments are expandable is always as recorded.
 */
export function recordedPytorchSettings(trace: Trace): PytorchSettings {
  const { expandableSegments: _, backend: __, ...others } = understandPytorchSettings(trace.settings ?? '').settings
  return hasExpandableSegments(trace) ? { ...others, expandableSegments: true } : others
}

/** The settings of a recording that no model takes, as they were written. */
export function unknownPytorchSettings({ settings }: Pick<Trace, 'settings'>): readonly string[] {
  return understandPytorchSettings(settings ?? '').unknown
}

function hasExpandableSegments({ initialSegments, action }: Trace): boolean {
  return initialSegments.some(segment => segment.expandable) || action.includes(Action.segmentMap)
}
