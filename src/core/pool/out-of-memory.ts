import { formatBytes, formatBytesUp } from '../base/bytes.js'
import { OutOfMemoryError, type OutOfMemoryFigures, type Remedy, type StreamMemory } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import { holdersOf } from '../driver/device-users.js'
import type { Pool, PoolStats } from './pool.js'

/** The remedy for a request of a pool that can never allocate more than `mostBytes` at a time. */
export function askForLess(bytes: number, mostBytes: number): Remedy | null {
  return bytes > mostBytes ? 'askForLess' : null
}

/** Processes that an error names; it sums the others. */
const MOST_PROCESSES = 3

/**
 * The error for a request that the device is too full for, and no limit of the pool stops. It names the other
 * processes there and memory that is kept for none, unless the request can never fit. NVML and the keeper take
 * milliseconds to tell them, so make it only to throw it.
 */
export function deviceFull(
  context: Context,
  message: string,
  figures: OutOfMemoryFigures,
  remedy: Remedy | null = null,
  streams: readonly StreamMemory[] = [],
): OutOfMemoryError {
  const holders = remedy === 'askForLess' ? null : holdersOf(context, MOST_PROCESSES)
  const text = holders === null ? message : message + holders.text
  return new OutOfMemoryError(text, figures, streams, remedy, holders?.processes ?? [])
}

/**
 * The error for a failed request, with a remedy that the pool knows. No request of over `mostBytes` ever fits. `full`
 * is the device's context if the device is too full to grow the pool.
 */
export function shortageOf(
  bytes: number,
  stats: PoolStats,
  mostBytes: number,
  deviceFreeBytes: number,
  whatHelps: string,
  full: Context | null,
): OutOfMemoryError {
  const facts = [
    `${formatBytes(stats.liveBytes)} live in ${formatBytes(stats.reservedBytes)} reserved`,
    limitText(stats),
    `${formatBytes(deviceFreeBytes)} free on the device`,
    stats.largestFreeBytes === 0
      ? 'no free block'
      : `largest free block at least ${formatBytes(stats.largestFreeBytes)}`,
  ]
  const message = `no room for ${formatBytes(bytes)}: ${facts.join(', ')}; ${whatHelps}`
  const figures = figuresOf(bytes, stats, deviceFreeBytes)
  const remedy = askForLess(bytes, mostBytes)
  return full === null ? new OutOfMemoryError(message, figures, [], remedy) : deviceFull(full, message, figures, remedy)
}

/** The error for a request beyond a limit around `upstream`. The limit is of `holder`, or of the whole wrapper. */
export function overLimit(
  upstream: Pool,
  bytes: number,
  handedOutBytes: number,
  maxPoolBytes: number,
  holder?: string,
): OutOfMemoryError {
  const limit = `limit of ${formatBytes(maxPoolBytes)}${holder === undefined ? '' : ` of ${holder}`}`
  return new OutOfMemoryError(
    `no room for ${formatBytes(bytes)} within the ${limit}, of which ${formatBytes(handedOutBytes)} are handed out; ${handedOutBytes > 0 && bytes <= maxPoolBytes ? 'free some or raise the limit' : 'ask for less, or raise the limit'}`,
    figuresOf(
      bytes,
      {
        liveBytes: handedOutBytes,
        reservedBytes: handedOutBytes,
        largestFreeBytes: Math.max(0, maxPoolBytes - handedOutBytes),
        maxPoolBytes,
      },
      upstream.context.activate().cuMemGetInfo().freeBytes,
    ),
    [],
    askForLess(bytes, maxPoolBytes),
  )
}

/** The error for a pool whose first `bytes` the device has no room for. */
export function noRoomToBegin(call: string, bytes: number, context: Context): OutOfMemoryError {
  const { freeBytes, totalBytes } = context.activate().cuMemGetInfo()
  return deviceFull(
    context,
    `${call}: no room for ${formatBytes(bytes)}: the device has ${formatBytes(freeBytes)} free; make the pool smaller, or free memory, here or in other programs`,
    figuresOf(bytes, { maxPoolBytes: bytes }, freeBytes),
    askForLess(bytes, totalBytes),
  )
}

/**
 * The advice for a request that a device of `totalBytes` cannot serve beside `liveBytes`, whatever the limits are;
 * null if it could.
 */
export function beyondDevice(liveBytes: number, bytes: number, totalBytes: number): string | null {
  const missing = liveBytes + bytes - totalBytes
  if (missing <= 0) return null
  const device = `the device has ${formatBytes(totalBytes)} in all`
  return bytes > totalBytes
    ? `${device}: ask for less, or use createPool({ backing: 'managed' })`
    : `${device}, ${formatBytes(missing)} too few: ask for less, or free that much`
}

/** The figures of every such error. Fields that `stats` lacks are 0, and the limit is Infinity. */
export function figuresOf(bytes: number, stats: Partial<PoolStats>, deviceFreeBytes: number): OutOfMemoryFigures {
  const { liveBytes = 0, pendingBytes = 0, reservedBytes = 0, largestFreeBytes = 0, maxPoolBytes = Infinity } = stats
  return {
    requestedBytes: bytes,
    liveBytes,
    pendingBytes,
    reservedBytes,
    largestFreeBytes,
    maxPoolBytes,
    deviceFreeBytes,
  }
}

/** The limit of a pool, in words. */
export function limitText({ maxPoolBytes }: PoolStats): string {
  return maxPoolBytes === Infinity ? 'no limit' : `limit ${formatBytes(maxPoolBytes)}`
}

/** The call that raises the limit to at least `bytes`. */
export function raiseTo(bytes: number): string {
  return ` (pool.maxPoolBytes = '${formatBytesUp(bytes)}')`
}
