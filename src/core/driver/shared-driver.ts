// One driver for several threads of a process; core/device/attach.ts and the pool servers use it. All threads share
// libcuda, so each thread opens a native driver of its own. A simulated driver stays in the thread that opened it:
// serve-waiting.ts and simulated/remote/ answer the calls of the other threads there.

import { randomUUID } from 'node:crypto'
import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { markOfThread } from '../threads/os-thread.js'
import type { Driver } from './driver.js'
import { NativeDriver } from './native/native-driver.js'
import { openRemote } from './simulated/remote/remote-driver.js'
import { serve } from './simulated/remote/served-driver.js'
import { SimulatedDriver } from './simulated/simulated-driver.js'

/** Describes a driver to other threads of this process. It can be posted in any message. */
export interface SharedDriver {
  readonly kind: 'native' | 'simulated'
  /** process id */
  readonly process: number
  /** unique among all shared drivers */
  readonly name: string
  /** the thread that opened it, as by `markOfThread` */
  readonly owner: string
  /** `origin` of the driver */
  readonly origin: string
}

/** by name: the drivers that this thread has shared or is connected to */
const drivers = new Map<string, Driver>()
/** by driver: its description */
const descriptors = new WeakMap<Driver, SharedDriver>()

/**
 * Lets other threads of this process use `driver`: pass the result to `connectDriver` there. The thread that opened a
 * simulated driver must live as long as other threads use it. Their calls wait while that thread is busy. A thread
 * that waits itself answers them by `serveWaiting`. Throws PoolError for a driver of any other class.
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
 * The driver that another thread has shared: the same object each time, and the original in the thread that opened
 * it. Waits until that thread answers. Throws TypeError unless `shared` describes a driver. Throws PoolError for a
 * driver of another process, or if the thread of a simulated driver has ended.
 */
export function connectDriver(shared: SharedDriver): Driver {
  if (!isShared(shared)) {
    throw new WrongTypeError(
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
