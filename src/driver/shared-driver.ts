// One driver for several threads of a process. The CUDA driver is the process's, so each thread opens it for itself; a
// simulated one stays with the thread that opened it, and the others call it there.

import { randomUUID } from 'node:crypto'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { markOfThread } from '../threads/os-thread.js'
import type { Driver } from './driver.js'
import { NativeDriver } from './native/native-driver.js'
import { openRemote } from './simulated/remote/remote-driver.js'
import { serve } from './simulated/remote/served-driver.js'
import { SimulatedDriver } from './simulated/simulated-driver.js'

/** A driver for other threads of this process; can be cloned into any message, and stands for the same driver in each. */
export interface SharedDriver {
  readonly kind: 'native' | 'simulated'
  /** number of the process */
  readonly process: number
  /** unlike that of any other driver */
  readonly name: string
  /** the thread that opened it, of `markOfThread` */
  readonly owner: string
  readonly origin: string
}

/** By name, the drivers that this thread has shared or is connected to, and what they are shared as. */
const drivers = new Map<string, Driver>()
const descriptors = new WeakMap<Driver, SharedDriver>()

/**
 * Lets other threads of this process use `driver`; what comes of it goes to `connectDriver` there. The thread that opened a
 * simulated driver must live as long as others use it. Their calls wait while it is busy with something else; where it
 * waits itself, `serveWaiting` lets them on. Throws PoolError for a driver that is neither ours nor CUDA's.
 */
export function shareDriver(driver: Driver): SharedDriver {
  const known = descriptors.get(driver)
  if (known !== undefined) return known
  const simulated = driver instanceof SimulatedDriver
  if (!simulated && !(driver instanceof NativeDriver)) {
    throw new PoolError("shareDriver: a driver of one's own cannot be shared; use a SimulatedDriver or a GPU's")
  }
  const shared: SharedDriver = {
    kind: simulated ? 'simulated' : 'native',
    process: process.pid,
    name: `cuda-mempool ${randomUUID()}`,
    owner: markOfThread(),
    origin: driver.origin,
  }
  if (simulated) serve(driver, shared.name)
  return remember(shared, driver)
}

/**
 * The driver that another thread has shared; the same object each time, and in the thread that opened it the original.
 * Waits until that thread answers. Throws TypeError for what is no descriptor, PoolError for one of another process, or
 * when the thread of a simulated driver has ended.
 */
export function connectDriver(shared: SharedDriver): Driver {
  if (!isShared(shared)) {
    throw new TypeError(
      `connectDriver: shared must come from shareDriver in another thread, not be ${describe(shared)}`,
    )
  }
  const { kind, name, owner, origin } = shared
  if (shared.process !== process.pid) {
    throw new PoolError(
      'connectDriver: the driver belongs to another process; share memory with that by file descriptors',
    )
  }
  const known = drivers.get(name)
  if (known !== undefined) return known
  const driver = kind === 'native' ? NativeDriver.open() : openRemote(name, owner, origin)
  remember(shared, driver)
  return driver
}

function remember(shared: SharedDriver, driver: Driver): SharedDriver {
  drivers.set(shared.name, driver)
  descriptors.set(driver, shared)
  return shared
}

function isShared(value: unknown): value is SharedDriver {
  if (typeof value !== 'object' || value === null) return false
  const { kind, process, name, owner, origin } = value as Partial<SharedDriver>
  return (
    (kind === 'native' || kind === 'simulated') &&
    typeof process === 'number' &&
    [name, owner, origin].every(text => typeof text === 'string')
  )
}
