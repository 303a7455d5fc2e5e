// Values of options that several commands take.

import { POLICIES, type Policy } from '../trace/replay-result.js'
import { UsageError } from './exit.js'

const MOST_COUNT = 1_000_000

/** Policies by their names, separated by commas. Throws UsageError for others. */
export function policiesOf(list: string): Policy[] {
  const names = list.split(',').map(name => name.trim())
  const unknown = names.find(name => !POLICIES.includes(name as Policy))
  if (unknown !== undefined) {
    throw new UsageError(`--policy: there is no '${unknown}'; there are ${POLICIES.join(', ')}`)
  }
  return [...new Set(names)] as Policy[]
}

/** A number of the command line. Throws UsageError, ending in `alternative`, for other text. */
export function wholeNumber(text: string, option: string, least: number, alternative: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  if (value >= least && value <= MOST_COUNT) return value
  throw new UsageError(`${option}: '${text}' is no whole number from ${least} to ${MOST_COUNT}${alternative}`)
}
