// Checks of names, versions and labels. Their errors name the argument, which the keeper's errors cannot.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { isPlain } from '../core/base/option-names.js'
import { MOST_LABEL_BYTES, MOST_NAME_BYTES } from '../core/keeper/region.js'

/** Throws TypeError or RangeError unless `value` is a text of that length; `what` names the call and the argument. */
export function checkText(what: string, value: unknown, leastBytes: number, mostBytes: number): void {
  if (typeof value !== 'string') throw new WrongTypeError(`${what} must be a text, not ${describe(value)}`)
  const bytes = Buffer.byteLength(value)
  if (bytes >= leastBytes && bytes <= mostBytes) return
  throw new OutOfRangeError(`${what} must have ${leastBytes} to ${mostBytes} bytes, not ${bytes}`)
}

/** The same for the name of a region. */
export function checkName(call: string, name: unknown): void {
  checkText(`${call}: name`, name, 1, MOST_NAME_BYTES)
}

/** The same for a version. */
export function checkVersion(call: string, version: unknown): void {
  if (version !== undefined) checkText(`${call}: version`, version, 0, MOST_NAME_BYTES)
}

/** Throws TypeError or RangeError unless `labels` are texts that are not too long. */
export function checkLabels(call: string, labels: unknown): void {
  if (labels === undefined) return
  if (!isPlain(labels) || !Object.values(labels).every(label => typeof label === 'string'))
    throw new WrongTypeError(`${call}: labels must be an object of texts such as { evictable: 'yes' }`)
  const bytes = Buffer.byteLength(JSON.stringify(labels))
  if (bytes <= MOST_LABEL_BYTES) return
  throw new OutOfRangeError(`${call}: labels must have at most ${MOST_LABEL_BYTES} bytes as JSON, not ${bytes}`)
}
