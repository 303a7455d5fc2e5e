// The settings of PyTorch that a policy names, and those that a recording was made with, as the models take them.

import type { NamedPolicy, Policy } from '../replay-result.js'
import { Action, type Trace } from '../trace.js'
import { NOT_IN_EFFECT } from './allocator-settings.js'
import {
  type PytorchSettings,
  parsePytorchSettings,
  type UnderstoodSettings,
  understandPytorchSettings,
} from './model/pytorch-settings.js'

/** Before the settings in the name of a policy. */
const PREFIX = 'pytorch:'

/** The settings that a policy names after 'pytorch:'; null if it names none. Throws RangeError for bad ones. */
export function pytorchSettingsOf(policy: unknown): PytorchSettings | null {
  if (typeof policy !== 'string' || !policy.startsWith(PREFIX)) return null
  return parsePytorchSettings(policy.slice(PREFIX.length))
}

/** Whether a model of this folder replays the policy. */
export function isModelOfPytorch(policy: Policy): boolean {
  if (policy === 'pytorch' || policy === 'pytorch-expandable') return true
  const settings = pytorchSettingsOf(policy)
  return settings !== null && settings.backend !== 'cudaMallocAsync'
}

/** The policy of a pool that stands for a policy without a model: the driver's pool for `backend:cudaMallocAsync`. */
export function poolPolicyOf(policy: Policy): NamedPolicy {
  return pytorchSettingsOf(policy) === null ? (policy as NamedPolicy) : 'driver-pool'
}

/**
 * The settings of a recording, as far as this version knows them; `settingsBeside` names the others. Whether
 * segments are expandable is always as recorded.
 */
export function recordedPytorchSettings(trace: Trace): PytorchSettings {
  const { expandableSegments: _, backend: __, ...others } = understandPytorchSettings(trace.settings ?? '').settings
  return hasExpandableSegments(trace) ? { ...others, expandableSegments: true } : others
}

/** Settings that no model takes, as they were written. */
export type SettingsBeside = Omit<UnderstoodSettings, 'settings'>

/** The settings in these texts that no model takes, each once. */
export function settingsBeside(texts: readonly string[]): SettingsBeside {
  const understood = texts.map(understandPytorchSettings)
  const all = (of: (each: SettingsBeside) => readonly string[]) => [...new Set(understood.flatMap(of))]
  return {
    unknown: all(({ unknown }) => unknown),
    notReplayed: all(({ notReplayed }) => notReplayed),
    withoutEffect: all(({ withoutEffect }) => withoutEffect),
  }
}

/** Whether the text of a recording has expandable segments that PyTorch did not have in effect. */
export function lacksExpandableSegments(text: string): boolean {
  return text.endsWith(`,${NOT_IN_EFFECT}`) && text.includes('expandable_segments:True')
}

function hasExpandableSegments({ initialSegments, action }: Trace): boolean {
  return initialSegments.some(segment => segment.expandable) || action.includes(Action.segmentMap)
}
