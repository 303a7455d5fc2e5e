// Finds out what a device can do by doing it: attributes and versions promise what some profiles and platforms refuse.

import { CudaError, NoDeviceError } from '../base/errors.js'
import { type Device, type DeviceChoice, openDevice } from '../device.js'
import { DEVICE_ATTRIBUTE } from '../driver/constants.js'
import type { Driver } from '../driver/driver.js'
import { DRIVER_TABLE, type FunctionName } from '../driver/native/table.js'
import { virtualMemoryObstacle } from '../pool/backing.js'
import type { DeviceReport, FeatureReport } from '../report/device-text.js'
import { SCALE_PTX } from './scale-kernel.js'

interface Feature {
  readonly name: string
  /** what it calls; the youngest decides which driver it needs */
  readonly functions: readonly FunctionName[]
  readonly without: string
  /** Uses it once. Throws CudaError, or returns why it does not work. */
  readonly use: (device: Device) => string | null | undefined
}

const FEATURES: readonly Feature[] = [
  {
    name: 'devices and streams',
    functions: ['cuDevicePrimaryCtxRetain', 'cuDevicePrimaryCtxRelease', 'cuStreamCreate', 'cuEventRecord'],
    without: 'nothing works',
    use: device => {
      device.driver.cuDevicePrimaryCtxRetain(device.context.device)
      device.driver.cuDevicePrimaryCtxRelease(device.context.device)
      device.createStream().close()
    },
  },
  {
    name: 'memory and copies',
    functions: ['cuMemAlloc', 'cuMemcpyHtoDAsync', 'cuMemHostRegister'],
    without: 'no pools',
    use: device => {
      using pool = device.createPlainPool()
      using buffer = pool.allocate(BYTES)
      buffer.writeSync(new Uint8Array(BYTES))
      const host = new Uint8Array(BYTES)
      device.driver.cuMemHostRegister(host, 0)
      device.driver.cuMemHostUnregister(host)
    },
  },
  {
    name: 'kernels from PTX',
    functions: ['cuModuleLoadData', 'cuModuleGetFunction', 'cuLaunchKernel'],
    without: 'no launches, no --verify',
    use: device => {
      using module = device.loadModule(SCALE_PTX)
      module.kernel('scale')
    },
  },
  {
    name: 'virtual memory',
    functions: ['cuMemAddressReserve', 'cuMemCreate', 'cuMemMap', 'cuMemSetAccess'],
    without: 'pools keep plain segments, more fragmented',
    use: device => virtualMemoryObstacle(device.context),
  },
  {
    name: "the driver's pool",
    functions: ['cuMemAllocAsync', 'cuMemFreeAsync', 'cuDeviceGetDefaultMemPool'],
    without: 'no driver-pool to compare with',
    use: ({ driver, context, defaultStream }) => {
      driver.cuDeviceGetDefaultMemPool(context.device)
      driver.cuMemFreeAsync(driver.cuMemAllocAsync(BYTES, defaultStream.handle), defaultStream.handle)
      driver.cuCtxSynchronize()
    },
  },
  {
    name: 'adopted streams',
    functions: ['cuStreamGetCtx', 'cuStreamGetId'],
    without: 'no streams of other libraries',
    use: device => {
      using stream = device.createStream()
      device.driver.cuStreamGetCtx(stream.handle)
      device.driver.cuStreamGetId(stream.handle)
    },
  },
]

const BYTES = 4096

/** Opens the chosen device and reports on it and its neighbours; 'auto' says why it is not a GPU if it is not. */
export function probe(choice: DeviceChoice, version: string): DeviceReport {
  let noGpu: string | null = null
  let device: Device
  try {
    device = openDevice(choice === 'auto' ? 0 : choice)
  } catch (error) {
    if (choice !== 'auto' || !(error instanceof NoDeviceError)) throw error
    noGpu = error.message
    device = openDevice('simulated')
  }
  try {
    const { driver, name, simulated, ordinal, context } = device
    const features = FEATURES.map(feature => report(feature, device))
    const hasVirtual = features.some(feature => feature.name === 'virtual memory' && feature.supported)
    return {
      version,
      node: process.version,
      noGpu,
      driver: { origin: driver.origin, simulated, version: versionText(driver.cuDriverGetVersion()) },
      devices: devicesOf(driver),
      device: {
        ordinal,
        name,
        simulated,
        ...device.memoryInfo(),
        granularityBytes: hasVirtual ? driver.cuMemGetAllocationGranularity(context.device) : null,
      },
      features,
    }
  } finally {
    device.close()
  }
}

function report({ name, functions, without, use }: Feature, device: Device): FeatureReport {
  const leastDriver = functions.map(each => DRIVER_TABLE[each][2]).reduce(later)
  const obstacle = obstacleOf(() => use(device))
  return { name, leastDriver, supported: obstacle === null, obstacle, without }
}

function obstacleOf(use: () => string | null | undefined): string | null {
  try {
    return use() ?? null
  } catch (error) {
    if (error instanceof CudaError) return error.message
    throw error
  }
}

function devicesOf(driver: Driver): DeviceReport['devices'] {
  return Array.from({ length: driver.cuDeviceGetCount() }, (_, ordinal) => {
    const device = driver.cuDeviceGet(ordinal)
    const [major, minor] = [
      DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
      DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    ].map(attribute => driver.cuDeviceGetAttribute(attribute, device))
    return {
      ordinal,
      name: driver.cuDeviceGetName(device),
      computeCapability: `${major}.${minor}`,
      totalBytes: driver.cuDeviceTotalMem(device),
    }
  })
}

/** `12040` → `12.4` */
function versionText(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`
}

function later(a: string, b: string): string {
  return a.localeCompare(b, 'en', { numeric: true }) >= 0 ? a : b
}
