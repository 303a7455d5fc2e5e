// The settings that a recording was made with, as the models take them.

import type { Trace } from '../trace.js'
import { Action } from '../trace.js'
import { LIMIT, type PytorchSettings, parsePytorchSettings } from './model/pytorch-settings.js'

/**
 * The settings of a recording. Without settings in the recording, or with text that PyTorch of another version
 * understood, they are PyTorch's defaults; whether segments are expandable is always as recorded.
 */
export function recordedPytorchSettings(trace: Trace): PytorchSettings {
  const { expandableSegments: _, backend: __, ...others } = understood(trace.settings ?? '')
  return hasExpandableSegments(trace) ? { ...others, expandableSegments: true } : others
}

/** The settings of a recording that this version understands; by default none. The limit is found by its failures. */
function understood(text: string): PytorchSettings {
  try {
    return parsePytorchSettings(text.replace(new RegExp(`(^|,)${LIMIT}[:=][^,]*`), '').replace(/^,/, ''))
  } catch {
    return {}
  }
}

function hasExpandableSegments({ initialSegments, action }: Trace): boolean {
  return initialSegments.some(segment => segment.expandable) || action.includes(Action.segmentMap)
}
