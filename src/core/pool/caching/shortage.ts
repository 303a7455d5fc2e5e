// The error of a caching pool without room: its numbers, and the remedy that they suggest.

import { formatBytes, formatBytesUp } from '../../base/bytes.js'
import { OutOfMemoryError, type Remedy, type StreamMemory } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { streamName } from '../../order/ordered-stream.js'
import type { Backing } from '../backing/backing.js'
import type { LiveGroup } from '../labels.js'
import { beyondDevice, deviceFull, figuresOf, limitText, raiseTo } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import type { PoolConfig } from './options.js'

/** Labels that an error names. */
const MOST_LABELS = 5

/** What the central heap tells about a request that got no block. */
export interface HeapShortage {
  readonly streams: readonly StreamMemory[]
  /** the longest run of free blocks */
  readonly largestFreeBytes: number
  readonly backing: Pick<Backing, 'kind' | 'granuleBytes'>
  /** the bytes of graph groups, and whether `maxBytes` of one has refused the request */
  readonly groups?: { readonly bytes: number; readonly isFull: boolean }
}

/** The state of a caching pool when a request of `bytes` failed. */
export interface Shortage extends HeapShortage {
  readonly context: Context
  readonly bytes: number
  /** the size of the block for the request */
  readonly blockBytes: number
  readonly stats: PoolStats
  readonly deviceFreeBytes: number
  readonly deviceTotalBytes: number
  readonly config: Pick<PoolConfig, 'leaveFreeBytes' | 'crossStreamReuse'>
  /** the live buffers with a label, by label, most bytes first */
  readonly labels?: readonly LiveGroup[]
  /** how to raise the limit if it is fixed */
  readonly raise: string | null
}

/** The error for a failed request: the numbers, and the remedy. */
export function outOfMemory(shortage: Shortage): OutOfMemoryError {
  return errorOf(`no room for ${formatBytes(shortage.bytes)}`, shortage, shortage)
}

/** The error for a pool that cannot reserve `shortage.bytes` in all. */
export function noRoomToReserve(shortage: Shortage): OutOfMemoryError {
  const { bytes, stats } = shortage
  const blockBytes = bytes - stats.reservedBytes
  // The memory that the pool has cannot serve a request for more of it.
  const full = { ...shortage, blockBytes, stats: { ...stats, liveBytes: stats.reservedBytes, pendingBytes: 0 } }
  return errorOf(`reserve: no room for ${formatBytes(blockBytes)} more`, shortage, full)
}

/** `judged` decides about the remedy. */
function errorOf(fact: string, shortage: Shortage, judged: Shortage): OutOfMemoryError {
  const { bytes, stats, deviceFreeBytes, deviceTotalBytes, largestFreeBytes, labels } = shortage
  const streams = [...shortage.streams].sort((a, b) => b.pendingBytes - a.pendingBytes)
  const heldElsewhereBytes = Math.max(0, deviceTotalBytes - deviceFreeBytes - stats.reservedBytes)
  const [remedy, advice] = remedyFor({ ...judged, streams }, heldElsewhereBytes)
  const pending = streams.filter(stream => stream.pendingBytes > 0)
  const facts = [
    `${formatBytes(stats.liveBytes)} live in ${formatBytes(stats.reservedBytes)} reserved`,
    ...(stats.cachedBytes > 0 ? [`${formatBytes(stats.cachedBytes)} cached`] : []),
    ...(shortage.groups?.bytes ? [`${formatBytes(shortage.groups.bytes)} in graph groups`] : []),
    ...pending.map(stream => `${formatBytes(stream.pendingBytes)} pending on ${streamName(stream.stream)}`),
    limitText(stats),
    `${formatBytes(deviceFreeBytes)} free on the device`,
    `largest free piece ${formatBytes(largestFreeBytes)}`,
    ...(labels ?? []).slice(0, MOST_LABELS).map(({ name, bytes: held }) => `${formatBytes(held)} labelled '${name}'`),
  ]
  const figures = {
    ...figuresOf(bytes, stats, deviceFreeBytes),
    cachedBytes: stats.cachedBytes,
    largestFreeBytes,
    heldElsewhereBytes,
  }
  const message = `${fact}: ${facts.join(', ')}; ${advice}`
  return remedy === 'freeDeviceMemory'
    ? deviceFull(shortage.context, message, figures, remedy, streams)
    : new OutOfMemoryError(message, figures, streams, remedy)
}

/** Checks the limits from the hardest to the softest; returns the remedy for the first one that stops the request. */
function remedyFor(shortage: Shortage, heldElsewhereBytes: number): [Remedy, string] {
  const {
    blockBytes: bytes,
    stats,
    streams,
    deviceFreeBytes,
    deviceTotalBytes,
    largestFreeBytes,
    config,
    backing,
    raise,
  } = shortage
  const { leaveFreeBytes, crossStreamReuse } = config
  if (shortage.groups?.isFull === true)
    return ['raiseLimit', 'raise maxBytes of the graph group, or free that much in it']
  const wholeSteps = (most: number) => Math.floor(most / backing.granuleBytes) * backing.granuleBytes
  const raised = (more: number, limit: number, note = '') =>
    `${raise ?? 'raise maxPoolBytes'} by at least ${formatBytesUp(more)}${note}${raise === null ? raiseTo(limit) : ''}`
  const isTooLarge = -wholeSteps(-bytes) > stats.maxPoolBytes
  if (backing.kind === 'virtual' || backing.kind === 'segments') {
    const tooMuch = beyondDevice(stats.liveBytes, bytes, deviceTotalBytes)
    if (tooMuch !== null) return [isTooLarge || bytes > deviceTotalBytes ? 'askForLess' : 'freeDeviceMemory', tooMuch]
  }
  const missing = -wholeSteps(-stats.liveBytes - bytes) - stats.maxPoolBytes
  if (missing > 0) {
    // Idle memory counts for the request only where it is whole steps, or next to each other.
    const surely = stats.reservedBytes - wholeSteps(-bytes) - stats.maxPoolBytes
    const orMore = surely > missing ? ` (${formatBytesUp(surely)} if no idle piece fits)` : ''
    const orFree = missing <= stats.liveBytes ? ' or free that much' : ''
    const advice = raised(missing, stats.maxPoolBytes + Math.max(missing, surely), `${orMore}${orFree}`)
    return isTooLarge ? ['askForLess', `ask for less, or ${advice}`] : ['raiseLimit', advice]
  }
  const idleBytes = stats.reservedBytes - stats.liveBytes
  if (idleBytes + wholeSteps(deviceFreeBytes) < bytes) {
    const held = heldElsewhereBytes > 0 ? `: ${formatBytes(heldElsewhereBytes)} of it are held elsewhere` : ''
    return ['freeDeviceMemory', `the device itself is full${held}; free memory, here or in other programs`]
  }
  const spareBytes = wholeSteps(Math.max(0, deviceFreeBytes - leaveFreeBytes))
  if (idleBytes + spareBytes < bytes) {
    return [
      'lowerLeaveFree',
      `leaveFreeBytes keeps ${formatBytes(leaveFreeBytes)} of the device free: lower it, or free memory`,
    ]
  }
  if (stats.pendingBytes > 0) {
    const [most] = streams
    const where = most === undefined || most.pendingBytes === 0 ? 'other devices' : streamName(most.stream)
    const waits = crossStreamReuse === 'ordered' ? ', or let streams wait for each other with crossStreamReuse' : ''
    return [
      'awaitPending',
      `${formatBytes(stats.pendingBytes)} are pending, most on ${where}: synchronise it first${waits}`,
    ]
  }
  const growthBytes = wholeSteps(Math.min(stats.maxPoolBytes - stats.reservedBytes, spareBytes))
  if (growthBytes >= bytes) {
    return ['freeDeviceMemory', 'the driver refused to give some of it; try again, or free memory, here or elsewhere']
  }
  const neededBytes = Math.min(-wholeSteps(-bytes), spareBytes)
  const idle = `${formatBytes(idleBytes)} are idle but in pieces of at most ${formatBytes(largestFreeBytes)}`
  const enoughBytes = stats.reservedBytes + neededBytes
  const slack =
    spareBytes > growthBytes
      ? raised(enoughBytes - stats.maxPoolBytes, enoughBytes)
      : `leave that much of the device free`
  const virtual = backing.kind === 'segments' ? ", or use backing 'virtual'" : ''
  return ['joinPieces', `${idle}: free what lies between them, or ${slack}${virtual}`]
}
