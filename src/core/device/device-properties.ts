import type { Context } from '../driver/context.js'
import { uuidText } from '../driver/uuid-text.js'

/** Facts about a device, from its driver. The simulated device has the figures of an H200. */
export interface DeviceProperties {
  /** such as 'NVIDIA H200'; 'simulated GPU' for the simulated one */
  readonly name: string
  /**
   * names the device on every machine: 8-4-4-4-12 hexadecimal digits, which nvidia-smi shows behind 'GPU-'. The
   * simulated device's are the text 'simulated', its seed and its number
   */
  readonly uuid: string
  /** the version of its instruction set: '9.0' for an H200 */
  readonly computeCapability: `${number}.${number}`
  /** number of streaming multiprocessors; each runs several blocks of threads */
  readonly multiprocessors: number
  /** bytes of device memory */
  readonly totalBytes: number
  /** most threads of a block */
  readonly maxThreadsPerBlock: number
  /** most bytes of shared memory of a block, for a kernel that asks for more than 48 KiB */
  readonly maxSharedBytesPerBlock: number
  /** the priority of streams whose work comes last, which is the default: 0 */
  readonly leastPriority: number
  /** the priority of streams whose work comes first: a number below 0, or 0 on a device without priorities */
  readonly greatestPriority: number
}

/** Asks the driver for the properties of a context's device. */
export function propertiesOf(context: Context): DeviceProperties {
  const driver = context.activate()
  const { device } = context
  const { least, greatest } = driver.cuCtxGetStreamPriorityRange()
  const major = context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR')
  const minor = context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR')
  return {
    name: driver.cuDeviceGetName(device),
    uuid: uuidText(driver.cuDeviceGetUuid(device)),
    computeCapability: `${major}.${minor}`,
    multiprocessors: context.attribute('CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT'),
    totalBytes: driver.cuDeviceTotalMem(device),
    maxThreadsPerBlock: context.attribute('CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK'),
    maxSharedBytesPerBlock: context.attribute('CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN'),
    leastPriority: least,
    greatestPriority: greatest,
  }
}
