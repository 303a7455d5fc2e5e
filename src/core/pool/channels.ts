// The messages of pools by node:diagnostics_channel. Pools publish where they call the driver anyway, and only to
// subscribers: a cached allocation never comes here.

import { channel } from 'node:diagnostics_channel'
import type { Stream } from '../order/stream.js'
import type { Pool } from './pool.js'

/** The message of `cuda-mempool:grow` and of `cuda-mempool:release`. */
export interface ReservedMessage {
  /** the `Pool` or `HostPool` whose memory changed */
  readonly pool: object
  /** bytes that it took from the device, or gave back; bytes of the host for a host pool */
  readonly bytes: number
  /** bytes that it has now */
  readonly reservedBytes: number
}

/** The message of `cuda-mempool:wait`. */
export interface WaitMessage {
  /** the pool that reuses memory */
  readonly pool: Pool
  /** the stream that was made to wait for the memory's last use on other streams */
  readonly stream: Stream
  /** how many waits were submitted */
  readonly waits: number
}

/** The message of `cuda-mempool:out-of-memory`. */
export interface OutOfMemoryMessage {
  /** the `Pool` or `HostPool` that refused */
  readonly pool: object
  /** requested bytes */
  readonly bytes: number
}

const GROW = channel('cuda-mempool:grow')
const RELEASE = channel('cuda-mempool:release')
const WAIT = channel('cuda-mempool:wait')
/** Requests that a pool refused for want of memory. */
export const OUT_OF_MEMORY = channel('cuda-mempool:out-of-memory')

/** the host pools by the pools of their blocks, which a program does not know */
const hostPools = new WeakMap<Pool, object>()

/** Lets messages of the pool of a host pool's blocks name the host pool. */
export function publishAs(blocks: Pool, pool: object): void {
  hostPools.set(blocks, pool)
}

/** Whether the program listens to a channel that also tells of allocations that succeed. */
export function hasSubscribers(): boolean {
  return [GROW, RELEASE, WAIT].some(channel => channel.hasSubscribers)
}

/** Tells of a change of `bytes` in the memory that a pool has of the device. */
export function publishReserved(pool: Pool, bytes: number, reservedBytes: number): void {
  const target = bytes > 0 ? GROW : RELEASE
  if (!target.hasSubscribers) return
  const named = hostPools.get(pool) ?? pool
  target.publish({ pool: named, bytes: Math.abs(bytes), reservedBytes } satisfies ReservedMessage)
}

/** Tells that `stream` was made to wait. */
export function publishWaits(pool: Pool, stream: Stream, waits: number): void {
  if (WAIT.hasSubscribers) WAIT.publish({ pool, stream, waits } satisfies WaitMessage)
}

/** Tells of a request that was refused. */
export function publishOutOfMemory(pool: Pool, bytes: number): void {
  if (!OUT_OF_MEMORY.hasSubscribers) return
  OUT_OF_MEMORY.publish({ pool: hostPools.get(pool) ?? pool, bytes } satisfies OutOfMemoryMessage)
}
