// The options of a keep, and checks of names, versions and labels. Their errors name the argument, which the keeper's
// errors cannot.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { type ByteSize, bytesOf } from '../core/base/byte-size.js'
import { describe } from '../core/base/bytes.js'
import { isPlain } from '../core/base/option-names.js'
import type { Context } from '../core/driver/context.js'
import { type IfFull, MOST_LABEL_BYTES, MOST_NAME_BYTES } from '../core/keeper/region.js'
import { signalOf, type WaitOptions } from '../core/order/wait-options.js'

/** Options of `openKeep`. */
export interface KeepOptions extends WaitOptions {
  /** the keeper's socket (that of this user's keeper) */
  readonly path?: string | undefined
  /** how long calls wait for a keeper that is away, in milliseconds; `openKeep` waits only if this is given (10,000) */
  readonly timeoutMs?: number | undefined
}

/** Options of `keep.region`, `keep.begin` and `keep.file`. */
export interface RegionOptions extends WaitOptions {
  /** the size of the region, rounded up to 256; it does not grow. Of a file the most that it may have */
  readonly bytes: ByteSize
  /** names the contents: another version is filled anew, while readers of the old one keep it ('') */
  readonly version?: string | undefined
  /** for people; `{ evictable: 'yes' }` lets `ifFull: 'evictUnused'` of another region drop this one */
  readonly labels?: Readonly<Record<string, string>> | undefined
  /**
   * if the keeper's limits have no room: refuse the region, drop evictable regions, the longest unused first, or drop
   * its older version; regions with readers stay ('fail')
   */
  readonly ifFull?: IfFull | undefined
}

/** Options of `keep.attach`. */
export interface AttachOptions extends WaitOptions {
  /** the version that is wanted (the latest) */
  readonly version?: string | undefined
}

const REGION_OPTIONS = ['bytes', 'version', 'labels', 'ifFull']
const IF_FULL: readonly IfFull[] = ['fail', 'evictUnused', 'replace']

/** What a call wants to find or fill. Throws TypeError or RangeError. */
export function readWanted(call: string, name: string, options: RegionOptions, context: Context) {
  const signal = signalOf(call, options, REGION_OPTIONS)
  const { version = '', labels, ifFull = 'fail' } = options
  checkName(call, name)
  checkVersion(call, version)
  checkLabels(call, labels)
  const bytes = bytesOf(options.bytes, `${call}: bytes`, context)
  if (!IF_FULL.includes(ifFull)) {
    throw new OutOfRangeError(`${call}: ifFull must be one of ${IF_FULL.join(', ')}, not ${describe(ifFull)}`)
  }
  return { name, version, purpose: 'fill', bytes, labels, ifFull, signal } as const
}

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
