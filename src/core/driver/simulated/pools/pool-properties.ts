// The checks of cuMemPoolCreate. Pinned memory lies on a device or in host memory, there on one NUMA node or on any;
// host memory on any node cannot be exported. Managed memory takes its location as a preference only, and cannot be
// exported. A device has access to host memory after cuMemPoolSetAccess. All devices have access to managed memory.

import { MiB } from '../../../base/bytes.js'
import {
  CU_MEM_ALLOCATION_TYPE_MANAGED,
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
} from '../../constants.js'
import type { MemPoolProperties } from '../../driver.js'
import type { CallInterceptor } from '../call-interceptor.js'
import type { PhysicalMemory, SimulatedDevice } from '../device.js'
import { type AccessRights, bitOf, EVERY_DEVICE } from '../memory/access-rights.js'
import type { Switch } from '../options.js'

/** Pools grow by this, and their limits are multiples of it. */
export const CHUNK_BYTES = 32 * MiB

const CU_MEM_LOCATION_TYPE_NONE = 0

/** The memory of a pool: its physical memory, limit, access rights and handle types. */
export interface PoolPlace {
  readonly memory: PhysicalMemory
  readonly managed: boolean
  readonly access: AccessRights
  readonly handleTypes: number
  /** a multiple of CHUNK_BYTES, or `Infinity` */
  readonly maxBytes: number
}

/** The place of a pool in the memory of `device`, without limit and export. */
export function placeOfDevice(device: SimulatedDevice): PoolPlace {
  const access = { devices: bitOf(device) }
  return { memory: device, managed: false, access, handleTypes: CU_MEM_HANDLE_TYPE_NONE, maxBytes: Infinity }
}

/** Finds the place for the properties of a pool. */
export class PoolPlaces {
  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly devices: readonly SimulatedDevice[],
    private readonly host: PhysicalMemory,
    private readonly numaNodes: number,
    /** refuses the call if the options switch a feature off */
    private readonly requireOption: (option: Switch) => void,
  ) {}

  /** The place that `properties` describe; refuses wrong properties. */
  of(properties: MemPoolProperties): PoolPlace {
    const { allocationType, handleTypes, maxBytes } = properties
    const managed = allocationType === CU_MEM_ALLOCATION_TYPE_MANAGED
    if (!managed && allocationType !== CU_MEM_ALLOCATION_TYPE_PINNED) {
      throw this.interceptor.invalid(`no allocation type ${allocationType}`)
    }
    this.interceptor.checkSize(maxBytes, 0)
    const device = this.deviceAt(properties, managed)
    if (handleTypes !== CU_MEM_HANDLE_TYPE_NONE) {
      if (managed) throw this.interceptor.invalid('managed memory cannot be shared by handles')
      if (properties.locationType === CU_MEM_LOCATION_TYPE_HOST)
        throw this.interceptor.invalid('memory of the host cannot be shared')
    }
    const common = { managed, handleTypes, maxBytes: Math.ceil(maxBytes / CHUNK_BYTES) * CHUNK_BYTES || Infinity }
    if (managed) return { ...common, memory: this.host, access: { ...EVERY_DEVICE } }
    if (device === null) return { ...common, memory: this.host, access: { devices: 0 } }
    return { ...common, memory: device, access: { devices: bitOf(device) } }
  }

  /** The device of the location; null for the host. */
  private deviceAt({ locationType, locationId }: MemPoolProperties, managed: boolean): SimulatedDevice | null {
    if (managed) this.requireOption('managedMemory')
    if (managed && locationType === CU_MEM_LOCATION_TYPE_NONE) return null
    if (locationType === CU_MEM_LOCATION_TYPE_DEVICE) {
      const device = this.devices[locationId]
      if (device === undefined) throw this.interceptor.invalid(`no device ${locationId}`)
      return device
    }
    if (locationType !== CU_MEM_LOCATION_TYPE_HOST && locationType !== CU_MEM_LOCATION_TYPE_HOST_NUMA) {
      throw this.interceptor.invalid(`no location of type ${locationType} for this kind of memory`)
    }
    this.requireOption('hostPools')
    if (locationType === CU_MEM_LOCATION_TYPE_HOST_NUMA && locationId >= this.numaNodes) {
      throw this.interceptor.invalid(`no NUMA node ${locationId}`)
    }
    return null
  }
}
