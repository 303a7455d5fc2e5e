// A line of settings to copy: the advice, and other settings of a person's own line or of the recording.

import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import { describe } from '../../../core/base/bytes.js'
import { shown } from '../../../core/base/shown-text.js'
import type { Trace } from '../trace.js'
import { formatPytorchSettings, understandPytorchSettings } from './model/pytorch-settings.js'
import { isTaken } from './model/setting-names.js'
import { type Part, partsOf, QUOTES } from './model/setting-parts.js'

/** An assignment in a shell or a file of variables, whose value is the line. */
const ASSIGNMENT = /^\s*(?:export\s+|set\s+)?PYTORCH_\w+=/
/** A setting that a shell takes as it stands. Others might run something there. */
const PLAIN = /^[\w@=:,.[\]+/-]+$/
/** No person's line is longer. A damaged recording may have any text. */
const MOST_LETTERS = 1000

/**
 * The settings advised, behind those of `line` that no replay takes: of pinned memory, the program's limit, unknown
 * ones. The others of the line are left out, because the advice was replayed without them. '' stands for no settings.
 */
export function mergedSettings(line: string, advised: string): string {
  return [keptSettings(line), advised].filter(each => each !== '').join(',')
}

/** The settings of a line that stay beside any advice. */
export function keptSettings(line: string): string {
  return textOf(partsIn(line).filter(part => !isTaken(part.name, part.value) && isPlain(part)))
}

/** The settings of a line that advice replaces, `backend` too. */
export function replacedSettings(line: string): string {
  return textOf(partsIn(line).filter(({ name, value }) => isTaken(name, value) && value !== null))
}

/** The settings of a line as a replay takes them. */
export function triedSettings(line: string): string {
  const { backend: _, ...settings } = understandPytorchSettings(replacedSettings(line)).settings
  return formatPytorchSettings(settings)
}

/** The settings that stay, of those that all of these recordings have. */
export function keptOfRecordings(traces: readonly Trace[]): string {
  const [first, ...others] = traces.map(({ settings }) => keptSettings(settings ?? ''))
  const sets = others.map(line => new Set(partsOf(line).map(({ written }) => written)))
  const kept = textOf(partsOf(first).filter(({ written }) => sets.every(set => set.has(written))))
  return kept.length > MOST_LETTERS ? '' : kept
}

/**
 * Throws TypeError or RangeError for anything but a line of PYTORCH_CUDA_ALLOC_CONF, and names the first bad setting. A
 * whole assignment is such a line, too.
 */
export function checkSettingsLine(line: unknown): void {
  if (typeof line !== 'string') throw new WrongTypeError(`merge must be text, not ${describe(line)}`)
  for (const part of partsIn(line)) {
    const { name, value, written } = part
    if (name === '' || value === null || value === '') {
      throw new OutOfRangeError(`'${shown(written)}' is no setting with a value, like expandable_segments:True`)
    }
    if (!isTaken(name, value) && !isPlain(part))
      throw new OutOfRangeError(`'${shown(written)}' has letters that a shell interprets`)
  }
}

/** The last value of a setting counts, so it stands once. */
function partsIn(line: string): Part[] {
  const parts = partsOf(line.replace(ASSIGNMENT, '').replaceAll(QUOTES, ''))
  return [...new Map(parts.filter(({ written }) => written !== '').map(part => [part.name, part])).values()]
}

function isPlain({ value, written }: Part): boolean {
  return value !== null && value !== '' && PLAIN.test(written)
}

function textOf(parts: readonly Part[]): string {
  return parts.map(({ name, value }) => `${name}:${value}`).join(',')
}
