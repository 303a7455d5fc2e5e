// Attaches devices and pools that another thread of this process shares.

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { Context } from '../driver/context.js'
import { connectDriver } from '../driver/shared-driver.js'
import { identityOf } from '../order/shared-order.js'
import type { SharedArenaPool } from '../pool/arena/shared-arena-pool.js'
import { checkArenaState } from '../pool/arena/shared-arena-state.js'
import type { SharedBlockPool } from '../pool/blocks/shared-block-pool.js'
import type { SharedHostPool } from '../pool/host/shared-host-pool.js'
import type { SharedPool } from '../pool/shared/shared-pool.js'
import { checkPoolState } from '../pool/shared/shared-state.js'
import { attachments, Device } from './device.js'
import {
  type ServedPool,
  SHARED_VERSION,
  type SharedArenaDescriptor,
  type SharedBlockDescriptor,
  type SharedDevice,
  type SharedHostDescriptor,
  type SharedPoolDescriptor,
} from './shared-pools.js'

/**
 * Attaches the device that another thread of this process has opened and shares. Returns the same object each time;
 * in the thread that opened the device, the original. Close it in each thread, and last in the thread that opened it.
 * Throws TypeError unless `shared` comes from `device.share()`. Throws PoolError for a descriptor of another process
 * or version, for a closed device, and on systems other than Linux.
 */
export function attachDevice(shared: SharedDevice): Device {
  if (!isSharedDevice(shared)) {
    throw new WrongTypeError(
      `attachDevice: shared must come from device.share() in another thread, not be ${describe(shared)}`,
    )
  }
  if (shared.version !== SHARED_VERSION) {
    const fact = `the descriptor is of version ${shared.version}, not ${SHARED_VERSION}`
    throw new PoolError(`attachDevice: ${fact}; use one version of the package in all threads`)
  }
  if (shared.process !== process.pid) {
    throw new PoolError('attachDevice: the device was opened by another process; open it in this one')
  }
  const known = attachments.get(identityOf(shared.order))
  if (known !== undefined) return known
  const driver = connectDriver(shared.driver)
  driver.cuInit()
  const context = Context.open(driver, shared.ordinal)
  try {
    return new Device(context, shared.order)
  } catch (error) {
    context.release()
    throw error
  }
}

/**
 * Attaches the pool that another thread of this process made by `createSharedPool` or one of its siblings, and shares.
 * Returns a pool of the same kind on the device `attachDevice(shared.device)`: the same object each time, until it is
 * closed here. Close it before the thread ends, or another thread must reclaim its buffers. Throws TypeError unless
 * `shared` comes from `pool.share()`. Throws PoolError for a descriptor of another process or version, for a closed
 * pool, and when too many threads use the pool.
 */
export function attachPool(shared: SharedArenaDescriptor): SharedArenaPool<SharedDevice>
export function attachPool(shared: SharedBlockDescriptor): SharedBlockPool<SharedDevice>
export function attachPool(shared: SharedHostDescriptor): SharedHostPool<SharedDevice>
export function attachPool(shared: SharedPoolDescriptor): SharedPool<SharedDevice>
export function attachPool(
  shared: SharedPoolDescriptor | SharedArenaDescriptor,
): ServedPool | SharedArenaPool<SharedDevice> {
  // Before the device is attached.
  if (shared?.kind === 'arena') checkArenaState('attachPool', shared)
  else checkPoolState('attachPool', shared)
  return attachDevice(shared.device).attachPool(shared)
}

function isSharedDevice(value: unknown): value is SharedDevice {
  if (typeof value !== 'object' || value === null) return false
  const { version, process, driver, ordinal, order } = value as Partial<SharedDevice>
  return [version, process, ordinal].every(Number.isInteger) && [driver, order].every(part => typeof part === 'object')
}
