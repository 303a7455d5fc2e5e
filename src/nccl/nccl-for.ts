// NCCL for the devices of a driver: the simulated one for simulated devices, libnccl for GPUs. libnccl is opened for
// the first communicator of a GPU, and then serves all GPUs of the thread.

import { PoolError } from '../core/base/errors.js'
import type { Driver } from '../core/driver/driver.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { NativeNccl } from './native-nccl.js'
import type { Nccl } from './nccl.js'
import { openSimulatedNccl } from './simulated/simulated-nccl.js'

let native: NativeNccl | null = null
/** by driver */
const simulated = new WeakMap<Driver, Nccl>()

/**
 * The same object each time. Throws NoLibraryError if the devices are GPUs and libnccl is missing or too old. Throws
 * PoolError for simulated devices of another thread or of a driver of one's own.
 */
export function ncclFor(driver: Driver): Nccl {
  const known = driver.simulated ? simulated.get(driver) : native
  if (known) return known
  if (!driver.simulated) {
    native = NativeNccl.open()
    return native
  }
  if (!(driver instanceof SimulatedDriver)) {
    throw new PoolError(
      "communicators of simulated devices need a device that this thread has opened: openDevice('simulated')",
      'ERR_NOT_SUPPORTED',
    )
  }
  const opened = openSimulatedNccl(driver)
  simulated.set(driver, opened)
  return opened
}

/** Lets the communicators of a simulated driver call `nccl`, such as one of an old version. */
export function useNccl(driver: SimulatedDriver, nccl: Nccl): void {
  simulated.set(driver, nccl)
}
