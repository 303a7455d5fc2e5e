// A replay as seen from PyTorch: the settings that the rows are nearest to, and the setting that helps.

import { formatBytes } from '../../core/base/bytes.js'
import { shown } from '../../core/base/shown-text.js'
import { lackedBy } from '../trace/pytorch/model/pytorch-settings.js'
import { lacksExpandableSegments, type SettingsBeside, settingsBeside } from '../trace/pytorch/named-settings.js'
import type { Policy, ReplayReport } from '../trace/replay-result.js'
import { isLess } from '../trace/tune/ranking.js'
import type { TuneReport } from '../trace/tune/tune-report.js'
import { isUnclear } from './figures.js'
import { formatShare } from './number-format.js'
import { hasOthers, nameOf } from './policy-names.js'
import { RECORDERS } from './recorders.js'

const EXPANDABLE = 'expandable_segments:True'
/** Before the settings in the name of a policy. */
const NAMED = 'pytorch:'
const ASYNC = 'backend:cudaMallocAsync'
/** The environment variable with PyTorch's settings, by the name that every version knows, with CUDA and with ROCm. */
export const VARIABLE = 'PYTORCH_CUDA_ALLOC_CONF'
const COPIED = new RegExp(`^(export|unset|set) ${VARIABLE}\\b`)

/** The line for the shell which sets the variable. Without settings PyTorch has its defaults. */
export function settingLine(settings: string, platform: 'Windows' | null): string {
  if (platform === 'Windows') return `set ${VARIABLE}=${settings}`
  return settings === '' ? `unset ${VARIABLE}` : `export ${VARIABLE}=${settings}`
}

/** Whether a line is one of `settingLine`. */
export function isSettingLine(line: string): boolean {
  return COPIED.test(line)
}

/** The settings that a recording was made with; null for a recording of another allocator. */
export function recordedSettings({ trace }: Pick<ReplayReport, 'trace'>): string | null {
  const { recordedFrom } = RECORDERS[trace.recorder]
  if (recordedFrom !== '') return recordedFrom
  if (trace.settings === null) return null
  if (trace.settings === '') return "Recorded with PyTorch's default settings."
  const beside = besideText(settingsBeside([trace.settings]))
  const off = notInEffect([trace.settings])
  const written = off.length === 0 ? trace.settings : trace.settings.slice(0, trace.settings.lastIndexOf(','))
  return [`Recorded with ${shown(written)}.`, ...off, ...beside].join(' ')
}

/** A sentence if one of these recorded settings has expandable segments that were not in effect. */
export function notInEffect(settings: readonly (string | null)[]): string[] {
  if (!settings.some(each => each !== null && lacksExpandableSegments(each))) return []
  return [
    'Expandable segments were not in effect: Windows has none, and PyTorch 2.9 reads them from ' +
      'PYTORCH_CUDA_ALLOC_CONF only.',
  ]
}

/** Sentences about settings that no model takes. */
export function besideText({ unknown, notReplayed, withoutEffect }: SettingsBeside): string[] {
  const sentences: string[] = []
  const named = (settings: readonly string[]) => shown(settings.join(' and '))
  if (unknown.length > 0) {
    const are = unknown.length === 1 ? 'is' : 'are'
    sentences.push(`Replays of PyTorch are as set, but for ${named(unknown)}, which ${are} not known.`)
  }
  if (notReplayed.length > 0) {
    const lacked = [...new Set(notReplayed.map(lackedBy))].join(' or ')
    sentences.push(`Replays leave out ${named(notReplayed)}: no recording has ${lacked}.`)
  }
  if (withoutEffect.length > 0) sentences.push(`No effect on the memory of a GPU: ${named(withoutEffect)}.`)
  return sentences
}

/** The parts of a line to copy that come from the person's own line, or from the recording. */
export function mergeText({ kept, replaced, advice }: Pick<TuneReport, 'kept' | 'replaced' | 'advice'>): string[] {
  const done = [
    ...(kept === '' ? [] : [`keep ${shown(kept)}`]),
    ...(replaced === '' ? [] : [`replace ${shown(replaced)} of the given line`]),
  ]
  const lines = advice.length === 0 || done.length === 0 ? [] : [`Lines to copy ${done.join(', and ')}.`]
  return replaced.includes(ASYNC) ? [...lines, `${ASYNC} would ignore the settings tried here.`] : lines
}

/** The settings of PyTorch that the rows of the table are nearest to, and settings of rows that no model takes. */
export function nearestSettings({ trace, runs, device }: ReplayReport): string | null {
  const settings: readonly [Policy, string][] = [
    ['pytorch-expandable', `is ${EXPANDABLE}`],
    ['driver-pool', `is nearest to ${ASYNC}${device.simulated ? ' (here simulated)' : ''}`],
    ['power-of-two', 'is nearest to roundup_power2_divisions:1 of older versions'],
  ]
  const asked = runs.flatMap(({ policy }) => (policy.startsWith(NAMED) ? [policy.slice(NAMED.length)] : []))
  const beside = besideText(settingsBeside(asked))
  const rows = settings.filter(([policy]) => runs.some(run => run.policy === policy))
  if (rows.length === 0 || trace.recorder !== 'PyTorch') return beside.join(' ') || null
  const named = rows.map(([policy, setting]) => `"${nameOf(policy, trace)}" ${setting}`).join('; ')
  const asSet = hasOthers(trace.settings) ? ['"As set": with the other settings of the recording.'] : []
  return [`In ${VARIABLE}: ${named}.`, ...asSet, ...beside].join(' ')
}

/** The setting that a replay showed to help, as a sentence and a line for the shell; otherwise neither or no line. */
export function helpfulSetting({ trace, runs, capacityBytes }: ReplayReport): string[] {
  const byDefault = runs.find(run => run.policy === 'pytorch')
  const expandable = runs.find(run => run.policy === 'pytorch-expandable')
  const hasIt = trace.settings?.includes(EXPANDABLE) || trace.settings?.includes('cudaMallocAsync')
  if (byDefault === undefined || expandable === undefined || trace.recorder !== 'PyTorch' || hasIt) return []
  const helps = (sentence: string) =>
    trace.platform === 'Windows'
      ? ['PyTorch has no expandable segments on Windows, where this was recorded; tune tries other settings.']
      : [`In a replay, PyTorch ${sentence} with expandable segments:`, settingLine(EXPANDABLE, trace.platform)]
  if (trace.failedRequests > 0 && capacityBytes === null) {
    if (byDefault.servesAtFailure !== false) return []
    if (expandable.servesAtFailure) return helps('served the request that failed')
    if (!isUnclear(expandable)) return []
    return [`PyTorch might have served the request that failed with ${EXPANDABLE}: that depends on the exact limit.`]
  }
  if (expandable.failures > 0) return []
  if (byDefault.failures > 0) return helps('served everything')
  const [now, was] = [expandable.peakReservedBytes, byDefault.peakReservedBytes]
  if (now === null || was === null || !isLess(now, was)) return []
  return helps(`reserved ${formatBytes(now)} instead of ${formatBytes(was)} (${formatShare(1 - now / was)} less)`)
}
