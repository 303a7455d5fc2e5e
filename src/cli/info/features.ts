// The features of a device, each with a program that tests it by one use.

import type { Device } from '../../core/device/device.js'
import {
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_ATTACH_GLOBAL,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  DEVICE_ATTRIBUTE,
} from '../../core/driver/constants.js'
import type { Driver } from '../../core/driver/driver.js'
import type { FunctionName } from '../../core/driver/table.js'
import { SHIPPED_PTX } from '../../core/kernel/device-code.js'
import { virtualMemoryObstacle } from '../../core/pool/backing/virtual-memory.js'
import { createDeviceHeap } from '../../kernel-memory/device-heap.js'
import { SCALE_PTX } from '../scale-kernel.js'

const BYTES = 4096
const SEGMENT_BYTES = 2 ** 20

export interface Feature {
  readonly name: string
  /** the driver functions of the feature; the newest decides the least driver, or one of the first feature */
  readonly functions: readonly FunctionName[]
  /** the CUDA version that it needs for another reason, for example its PTX */
  readonly since?: string
  /** the loss without this feature */
  readonly without: string
  /**
   * Uses the feature once. Throws CudaError, or returns the reason why it does not work; null or undefined if it
   * does.
   */
  readonly use: (device: Device) => string | null | undefined
}

/** The first is needed by all. */
export const FEATURES: readonly Feature[] = [
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
    name: 'cooperative launches',
    functions: ['cuLaunchCooperativeKernel', 'cuOccupancyMaxActiveBlocksPerMultiprocessor'],
    without: 'no cooperative: true',
    use: ({ driver, context }) => {
      const attribute = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
      return driver.cuDeviceGetAttribute(attribute, context.device) === 1 ? null : 'the device does not offer it'
    },
  },
  {
    name: 'memory for kernels',
    functions: ['cuLaunchKernel', 'cuMemcpyDtoHAsync'],
    since: SHIPPED_PTX.leastCuda,
    without: 'no device arenas, no device heaps',
    use: device => {
      using pool = device.createPlainPool()
      using region = pool.allocate(SEGMENT_BYTES)
      using heap = createDeviceHeap(device, region)
      heap.check()
    },
  },
  {
    name: 'virtual memory',
    functions: ['cuMemAddressReserve', 'cuMemCreate', 'cuMemMap', 'cuMemSetAccess'],
    without: 'plain segments, no growable buffers',
    use: device => virtualMemoryObstacle(device.context),
  },
  {
    name: 'pinned memory',
    functions: ['cuMemHostRegister', 'cuMemHostGetDevicePointer'],
    without: 'no host pool',
    use: device => {
      using pool = device.createHostPool({ maxPoolBytes: SEGMENT_BYTES, segmentBytes: SEGMENT_BYTES, mapped: true })
      pool.allocate(BYTES).free()
    },
  },
  {
    name: 'managed memory',
    functions: ['cuMemAllocManaged'],
    without: "no backing: 'managed'",
    use: ({ driver, context }) => {
      const attribute = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
      if (driver.cuDeviceGetAttribute(attribute, context.device) !== 1) return 'the device does not offer it'
      driver.cuMemFree(driver.cuMemAllocManaged(BYTES, CU_MEM_ATTACH_GLOBAL))
      return null
    },
  },
  {
    name: "the driver's pools",
    functions: ['cuMemAllocAsync', 'cuMemFreeAsync', 'cuMemPoolCreate', 'cuMemAllocFromPoolAsync'],
    without: 'no driver pools',
    use: ({ driver, context, defaultStream }) => {
      driver.cuDeviceGetDefaultMemPool(context.device)
      driver.cuMemFreeAsync(driver.cuMemAllocAsync(BYTES, defaultStream.handle), defaultStream.handle)
      driver.cuCtxSynchronize()
      makePool(driver, CU_MEM_LOCATION_TYPE_DEVICE, context.device)
    },
  },
  {
    name: 'host NUMA pools',
    functions: ['cuMemPoolCreate'],
    without: 'no driver pools in host memory',
    use: ({ driver, context }) => {
      const attribute = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
      const node = driver.cuDeviceGetAttribute(attribute, context.device)
      makePool(driver, CU_MEM_LOCATION_TYPE_HOST_NUMA, Math.max(0, node))
    },
  },
  {
    name: 'sharing',
    functions: ['cuMemExportToShareableHandle', 'cuMemImportFromShareableHandle'],
    without: 'no memory shared between processes',
    use: ({ driver, context }) => {
      const granule = driver.cuMemGetAllocationGranularity(context.device)
      const type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
      driver.cuMemRelease(driver.cuMemCreate(granule, context.device, type))
    },
  },
  {
    name: 'peer access',
    functions: ['cuDeviceCanAccessPeer', 'cuCtxEnablePeerAccess', 'cuMemcpyPeerAsync'],
    without: 'copies between devices pass the host',
    use: ({ driver, context }) => {
      const others = Array.from({ length: driver.cuDeviceGetCount() }, (_, ordinal) => driver.cuDeviceGet(ordinal))
      const peers = others.filter(other => other !== context.device)
      if (peers.length === 0) return 'there is no second device'
      if (peers.some(peer => driver.cuDeviceCanAccessPeer(context.device, peer))) return null
      return 'no other device can be reached'
    },
  },
  {
    name: 'graphs',
    functions: ['cuStreamBeginCapture', 'cuStreamEndCapture', 'cuGraphInstantiate', 'cuGraphLaunch'],
    without: 'no captures',
    use: device => {
      using pool = device.createPool()
      using stream = device.createStream()
      using graph = device.capture(stream, () => pool.allocate(BYTES, stream).fill(0))
      graph.launch(stream)
      for (const { ptr } of pool.live()) pool.deallocate(ptr)
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

function makePool(driver: Driver, locationType: number, locationId: number): void {
  const allocationType = CU_MEM_ALLOCATION_TYPE_PINNED
  const handleTypes = CU_MEM_HANDLE_TYPE_NONE
  driver.cuMemPoolDestroy(
    driver.cuMemPoolCreate({ allocationType, handleTypes, locationType, locationId, maxBytes: 0 }),
  )
}
