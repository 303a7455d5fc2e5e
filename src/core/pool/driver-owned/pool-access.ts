// Read and write access to the memory of a driver pool. At first only the device with the memory has access, and
// kernels of other devices fault on it. One change is one driver call, because one bad entry in the driver's list of
// changes voids the whole list.

import { WrongTypeError } from '../../base/argument-errors.js'
import { describe } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  RESULT,
} from '../../driver/constants.js'
import { Context } from '../../driver/context.js'
import type { AccessLocation, PoolAccess } from '../access.js'

const FLAGS = { readWrite: CU_MEM_ACCESS_FLAGS_PROT_READWRITE, none: CU_MEM_ACCESS_FLAGS_PROT_NONE }
/** The driver's answers to an impossible access. */
const IMPOSSIBLE: readonly number[] = [
  RESULT.CUDA_ERROR_INVALID_VALUE,
  RESULT.CUDA_ERROR_INVALID_DEVICE,
  RESULT.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
  RESULT.CUDA_ERROR_NOT_SUPPORTED,
]

/** The access of a location to `pool`, a pool of the device of `context`. */
export function accessOf(context: Context, pool: number, location: AccessLocation): PoolAccess {
  const [type, id] = placeOf('access', context, location)
  const flags = context.activate().cuMemPoolGetAccess(pool, type, id)
  return flags === CU_MEM_ACCESS_FLAGS_PROT_NONE ? 'none' : 'readWrite'
}

/** Changes one access. Throws PoolError if it is impossible. */
export function changeAccess(context: Context, pool: number, location: AccessLocation, access: PoolAccess): void {
  const [type, id] = placeOf('setAccess', context, location)
  try {
    context.activate().cuMemPoolSetAccess(pool, type, id, FLAGS[access])
  } catch (error) {
    if (!(error instanceof CudaError) || !IMPOSSIBLE.includes(error.result)) throw error
    const reason = reasonOf(context, location, access)
    const refused = `'${access}' for ${nameOf(location)} is refused`
    throw new PoolError(`setAccess: ${refused}: ${reason} (${error.message})`, 'ERR_POOL', { cause: error })
  }
}

function placeOf(call: string, context: Context, location: AccessLocation): [type: number, id: number] {
  if (location === 'host') return [CU_MEM_LOCATION_TYPE_HOST, 0]
  const other = location?.context
  if (!(other instanceof Context)) {
    throw new WrongTypeError(`${call}: location must be a device or 'host', not ${describe(location)}`)
  }
  if (!other.sharesAddresses(context)) {
    throw new PoolError(
      `${call}: the device was opened on another driver; open both with openDevices()`,
      'ERR_OTHER_DEVICE',
    )
  }
  return [CU_MEM_LOCATION_TYPE_DEVICE, other.device]
}

function reasonOf(context: Context, location: AccessLocation, access: PoolAccess): string {
  if (location === 'host') {
    return access === 'none'
      ? 'the host keeps access to memory of its own'
      : "memory of a device is not the host's to use; read and write through buffers, or create the pool at the location 'host'"
  }
  const other = location.context
  if (access === 'none') return 'a pool’s own device keeps access, and to managed memory every device'
  if (other !== context && !context.activate().cuDeviceCanAccessPeer(other.device, context.device)) {
    return `device ${other.ordinal} has no way to memory of device ${context.ordinal}; copy between their buffers instead`
  }
  return 'the memory of this pool cannot be given to it; copy between buffers instead'
}

function nameOf(location: AccessLocation): string {
  return location === 'host' ? 'the host' : `device ${location.context.ordinal}`
}
