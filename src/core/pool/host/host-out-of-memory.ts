// The error of a host pool that has no room.

import { freemem } from 'node:os'
import { formatBytes, formatBytesUp } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import { PAGE_BYTES } from '../backing/pinned-segments.js'
import { askForLess, figuresOf, raiseTo } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'

/** The error for a request of `bytes` that a host pool with these counters cannot serve. */
export function hostOutOfMemory(bytes: number, stats: PoolStats): OutOfMemoryError {
  const { liveBytes, reservedBytes, maxPoolBytes } = stats
  const missing = liveBytes + bytes - maxPoolBytes
  const wholeBytes = Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES
  const surely = reservedBytes + wholeBytes - maxPoolBytes
  const orMore = surely > missing ? ` (${formatBytesUp(surely)} if no idle piece fits)` : ''
  const orFree = missing <= liveBytes ? ' or free that much' : ''
  const isTooLarge = wholeBytes > maxPoolBytes
  const call = raiseTo(maxPoolBytes + Math.max(missing, surely))
  const raise = `raise maxPoolBytes by at least ${formatBytesUp(missing)}${orMore}${orFree}${call}`
  let remedy = isTooLarge ? `ask for less, or ${raise}` : raise
  if (missing <= 0) {
    remedy =
      reservedBytes + bytes > maxPoolBytes
        ? 'there is enough in all but not in one piece: free a neighbour of a free block, or raise maxPoolBytes'
        : 'the system pins no more: free host memory, or raise its limit of locked memory'
  }
  return new OutOfMemoryError(
    `no room for ${formatBytes(bytes)} of pinned host memory: ${formatBytes(liveBytes)} live in ` +
      `${formatBytes(reservedBytes)} pinned, limit ${formatBytes(maxPoolBytes)}; ${remedy}`,
    figuresOf(bytes, stats, freemem()), // of the host, because this memory lies there
    [],
    askForLess(wholeBytes, maxPoolBytes),
  )
}
