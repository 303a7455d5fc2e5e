import { formatBytes } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import type { Backing } from './backing.js'
import type { Pool, PoolStats } from './pool.js'

/** What a caching pool knows when a request of `bytes` got nothing. */
export interface Shortage {
  readonly bytes: number
  readonly stats: PoolStats
  readonly deviceFreeBytes: number
  readonly leaveFreeBytes: number
  readonly backing: Backing['kind']
}

/** The error for a request that got nothing: the numbers, and what would help. */
export function outOfMemory(shortage: Shortage): OutOfMemoryError {
  const { bytes, stats, deviceFreeBytes } = shortage
  const facts = [
    `${formatBytes(stats.liveBytes)} live in ${formatBytes(stats.reservedBytes)} reserved`,
    `limit ${formatBytes(stats.limitBytes)}`,
    `${formatBytes(deviceFreeBytes)} free on the device`,
    `largest free block at least ${formatBytes(stats.largestFreeBytes)}`,
  ]
  return new OutOfMemoryError(`no room for ${formatBytes(bytes)}: ${facts.join(', ')}; ${remedy(shortage)}`, {
    requestedBytes: bytes,
    liveBytes: stats.liveBytes,
    pendingBytes: stats.pendingBytes,
    reservedBytes: stats.reservedBytes,
    largestFreeBytes: stats.largestFreeBytes,
    limitBytes: stats.limitBytes,
    deviceFreeBytes,
  })
}

/** The error for a request that a limit around `upstream` refuses; `holder` is whose limit it is, if not all of the wrapper's. */
export function overLimit(
  upstream: Pool,
  bytes: number,
  handedOutBytes: number,
  limitBytes: number,
  holder?: string,
): OutOfMemoryError {
  const limit = `limit of ${formatBytes(limitBytes)}${holder === undefined ? '' : ` of ${holder}`}`
  const { liveBytes, pendingBytes, reservedBytes, largestFreeBytes } = upstream.stats()
  return new OutOfMemoryError(
    `no room for ${formatBytes(bytes)} within the ${limit}, of which ${formatBytes(handedOutBytes)} are handed out; free some or raise the limit`,
    {
      requestedBytes: bytes,
      liveBytes,
      pendingBytes,
      reservedBytes,
      largestFreeBytes,
      limitBytes,
      deviceFreeBytes: upstream.context.activate().cuMemGetInfo().freeBytes,
    },
  )
}

function remedy({ bytes, stats, deviceFreeBytes, leaveFreeBytes, backing }: Shortage): string {
  const missing = stats.liveBytes + bytes - stats.limitBytes
  if (missing > 0) return `raise maxPoolBytes by at least ${formatBytes(missing)} or free that much`
  const idleBytes = stats.reservedBytes - stats.liveBytes
  if (idleBytes + deviceFreeBytes < bytes) return 'the device itself is full: free memory, here or in other programs'
  if (idleBytes + Math.max(0, deviceFreeBytes - leaveFreeBytes) < bytes) {
    return `leaveFreeBytes keeps ${formatBytes(leaveFreeBytes)} of the device free: lower it, or free memory`
  }
  const pieces = 'there is enough in all but not in one piece: free a neighbour of a free block'
  return backing === 'segments' ? `${pieces}, or use backing 'virtual'` : `${pieces}, or leave some slack`
}
