// Access of other devices to the memory of a pool: the part that all kinds of pools share.

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { CudaError, PoolError } from '../base/errors.js'
import { Context, unreachable } from '../driver/context.js'
import { checkIsStream, type Stream } from '../order/stream.js'

/** A device, or the host's processors. */
export type AccessLocation = AccessingDevice | 'host'

/** A `Device`; in the package, any object that has its context. */
export interface AccessingDevice {
  /** the device's number, from 0 */
  readonly ordinal?: number
  /** @internal */
  readonly context: Context
}

/** The access of a device to memory of another device. */
export type PoolAccess = 'readWrite' | 'none'

/** Access of one device to memory. */
export interface AccessChange {
  /** the device that gets or loses access */
  readonly location: AccessLocation
  /** its access from now on */
  readonly access: PoolAccess
}

/**
 * Makes one change, or all possible changes of a list. Then a PoolError names the entries that failed; its cause is
 * their errors.
 */
export function changeEach(
  what: AccessLocation | readonly AccessChange[],
  access: PoolAccess | undefined,
  change: (location: AccessLocation, access: PoolAccess) => void,
): void {
  if (!isList(what)) {
    checkWords(what, access)
    change(what, access)
    return
  }
  const errors = what.flatMap((entry, index) => {
    try {
      checkWords(entry?.location, entry?.access)
      change(entry.location, entry.access)
      return []
    } catch (error) {
      if (!isAboutOne(error)) throw error
      return [{ index, error }]
    }
  })
  if (errors.length === 0) return
  const reasons = errors
    .map(({ index, error }) => `entry ${index}: ${error.message.replace('setAccess: ', '')}`)
    .join('; ')
  const count = errors.length === what.length ? 'all' : `${errors.length} of ${what.length}`
  const others = errors.length === what.length ? '' : ', the others are made'
  throw new PoolError(`setAccess: ${count} changes failed${others}: ${reasons}`, 'ERR_POOL', {
    cause: errors.map(({ error }) => error),
  })
}

/**
 * The context whose access to device memory of `owner` changes; null for its own device, which always has access.
 * Throws PoolError for an impossible change.
 */
export function peerOf(owner: Context, location: AccessLocation, access: PoolAccess): Context | null {
  if (location === 'host') {
    if (access === 'none') return null
    throw new PoolError(
      `setAccess: memory of device ${owner.ordinal} is not the host's to use; read and write through buffers, or use a pool with backing 'managed'`,
    )
  }
  const { context } = location
  if (!context.sharesDevice(owner)) {
    context.checkCanAccess('setAccess', owner)
    return context
  }
  if (access === 'readWrite') return null
  throw new PoolError(`setAccess: device ${owner.ordinal} is the pool's own and keeps access; close the pool instead`)
}

/**
 * `setAccess` for plain allocations. The driver gives a device access to all of them or none: this is the peer access
 * of `peer` to `owner`, so other plain allocations become accessible too.
 */
export function changePlainAccess(owner: Context, peer: Context, access: PoolAccess): void {
  if (access === 'readWrite') peer.enablePeerAccess(owner)
  else if (peer.hasPeerAccess(owner)) {
    throw new PoolError(
      `setAccess: plain allocations of device ${owner.ordinal} are open to device ${peer.ordinal} all or none, by enablePeerAccess, and stay so; use a pool with backing 'virtual' to take access away`,
    )
  }
}

/** Of a pool: who can use its memory. */
interface UsableMemory {
  readonly context: Context
  readonly servesCaptures?: boolean
  reachableFrom(context: Context): boolean
}

/** Refuses, in the name of `call`, a stream whose work cannot have used memory of `pool`. */
export function checkUser(call: string, stream: Stream, pool: UsableMemory): void {
  checkIsStream(call, stream)
  if (pool.servesCaptures !== true) stream.checkUncaptured(call)
  if (!pool.reachableFrom(stream.context)) throw unreachable(`${call}: the stream`, stream.context, pool.context)
}

function checkWords(location: unknown, access: unknown): asserts access is PoolAccess {
  if (location !== 'host' && !((location as { context?: unknown } | null)?.context instanceof Context)) {
    throw new WrongTypeError(`setAccess: location must be a device or 'host', not ${describe(location)}`)
  }
  if (access !== 'readWrite' && access !== 'none') {
    throw new WrongTypeError(`setAccess: access must be 'readWrite' or 'none', not ${describe(access)}`)
  }
}

function isList(what: AccessLocation | readonly AccessChange[]): what is readonly AccessChange[] {
  return Array.isArray(what)
}

/** Whether an error concerns one entry alone, unlike the error of a lost device. */
function isAboutOne(error: unknown): error is Error {
  return [TypeError, PoolError, CudaError].some(kind => error instanceof kind)
}
