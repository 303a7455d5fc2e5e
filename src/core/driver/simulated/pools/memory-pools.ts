// All cuMemPools of one driver, by handle: default, created and imported pools, and destroyed pools with live
// allocations. Each device has a current pool. calls.ts uses it.

import type { Bytes } from '../../../base/typed-arrays.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  RESULT,
} from '../../constants.js'
import type { MemPoolProperties } from '../../driver.js'
import type { CallInterceptor } from '../call-interceptor.js'
import { type PhysicalMemory, SimulatedDevice } from '../device.js'
import { HandleTable } from '../handle-table.js'
import { bitOf } from '../memory/access-rights.js'
import type { AddressSpace } from '../memory/address-space.js'
import type { PeerAccess } from '../memory/peer-access.js'
import type { Shareables } from '../memory/shareable.js'
import type { Scheduler } from '../streams/scheduler.js'
import type { StreamQueue } from '../streams/stream-queue.js'
import { MemoryPool } from './memory-pool.js'
import { exportPointer, PoolImport } from './pool-import.js'
import { type PoolPlace, type PoolPlaces, placeOfDevice } from './pool-properties.js'

type Pool = MemoryPool | PoolImport

/** The pools of all devices. */
export class MemoryPools {
  private readonly table = new HandleTable<Pool>(0x4000_0000)
  /** all pools, with destroyed pools that still have allocations */
  private pools: Pool[] = []
  /** by device: the handle of its default pool */
  private readonly defaults: readonly number[]
  /** by device: the handle of its current pool */
  private readonly current: number[]
  private made = 0

  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly space: AddressSpace,
    private readonly scheduler: Scheduler,
    private readonly devices: readonly SimulatedDevice[],
    private readonly places: PoolPlaces,
    private readonly peers: PeerAccess,
    private readonly shareables: Shareables,
  ) {
    this.defaults = devices.map(device => this.add(this.newPool(placeOfDevice(device))))
    this.current = [...this.defaults]
  }

  get(handle: number): Pool {
    const pool = this.table.get(handle)
    if (pool === undefined) throw this.interceptor.invalid('no such pool')
    return pool
  }

  defaultOf(device: SimulatedDevice): number {
    return this.defaults[device.ordinal]
  }

  currentOf(device: SimulatedDevice): number {
    return this.current[device.ordinal]
  }

  setCurrent(device: SimulatedDevice, handle: number): void {
    const pool = this.own(handle)
    if (pool.place.memory !== device)
      throw this.interceptor.invalid(`the memory of the pool is not that of ${device.name}`)
    this.current[device.ordinal] = handle
  }

  create(properties: MemPoolProperties): number {
    const place = this.places.of(properties)
    this.shareables.checkPoolTypes(place.handleTypes)
    return this.add(this.newPool(place))
  }

  destroy(handle: number): void {
    const pool = this.get(handle)
    if (this.defaults.includes(handle)) throw this.interceptor.invalid('a default pool cannot be destroyed')
    const device = this.current.indexOf(handle)
    if (device >= 0) this.current[device] = this.defaults[device]
    this.table.remove(handle)
    pool.destroy()
    this.forgetGone()
  }

  allocate(handle: number, bytes: number, stream: StreamQueue): number {
    const pool = this.own(handle)
    this.interceptor.checkSize(bytes, 1)
    const ptr = pool.allocate(bytes, stream)
    if (ptr === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    return ptr
  }

  /** Frees in the order of `stream`; false if `ptr` is not the begin of an allocation of a pool. */
  release(ptr: number, stream: StreamQueue): boolean {
    for (const pool of this.pools) if (pool.release(ptr, stream)) return true
    return false
  }

  /** The physical memory of the pool allocation that begins at `ptr`; undefined for other addresses. */
  memoryOf(ptr: number): PhysicalMemory | undefined {
    return this.pools.find(pool => pool.owns(ptr))?.place.memory
  }

  /** The host has waited: pools release memory above their thresholds. */
  synchronized(): void {
    for (const pool of this.pools) pool.synchronized()
    this.forgetGone()
  }

  access(handle: number, locationType: number, locationId: number): number {
    const { memory, access } = this.get(handle).place
    const has = isHost(locationType)
      ? !(memory instanceof SimulatedDevice)
      : (access.devices & bitOf(this.deviceAt(locationType, locationId))) !== 0
    return has ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE
  }

  /** Cannot remove access of the own device, of the host to host memory, or of any device to managed memory. */
  setAccess(handle: number, locationType: number, locationId: number, flags: number): void {
    const { place } = this.get(handle)
    const grant = flags === CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    if (!grant && flags !== CU_MEM_ACCESS_FLAGS_PROT_NONE)
      throw this.interceptor.invalid(`no access of the kind ${flags} for pools`)
    if (isHost(locationType)) {
      const isInHost = !(place.memory instanceof SimulatedDevice)
      if (grant !== isInHost)
        throw this.interceptor.invalid('the host has access to memory of its own, and to no other')
      return
    }
    const device = this.deviceAt(locationType, locationId)
    if (!grant && (place.memory === device || place.managed))
      throw this.interceptor.invalid('this access cannot be taken away')
    if (grant) {
      this.peers.checkReachable(device, place.memory)
      place.access.devices |= bitOf(device)
    } else {
      place.access.devices &= ~bitOf(device)
    }
  }

  export(handle: number, handleType: number): number {
    const pool = this.own(handle)
    return this.shareables.export(pool, pool.place.handleTypes, handleType)
  }

  import(descriptor: number, handleType: number): number {
    const source = this.shareables.import(descriptor, handleType, MemoryPool)
    return this.add(new PoolImport(source, this.space, this.scheduler, this.interceptor))
  }

  exportPointer(ptr: number): Bytes {
    for (const pool of this.pools) {
      if (!(pool instanceof MemoryPool) || pool.place.handleTypes === 0) continue
      const exported = exportPointer(pool, ptr)
      if (exported !== undefined) return exported
    }
    throw this.interceptor.invalid('no allocation of a pool that can be shared begins there')
  }

  importPointer(handle: number, exported: Uint8Array): number {
    const pool = this.get(handle)
    if (!(pool instanceof PoolImport)) throw this.interceptor.invalid('the pool is none that was imported')
    return pool.importPointer(exported)
  }

  private newPool(place: PoolPlace): MemoryPool {
    return new MemoryPool(++this.made, place, this.space, this.scheduler, this.interceptor)
  }

  private add(pool: Pool): number {
    this.pools.push(pool)
    return this.table.add(pool)
  }

  private own(handle: number): MemoryPool {
    const pool = this.get(handle)
    if (pool instanceof MemoryPool) return pool
    throw this.interceptor.invalid('the pool was imported: it can only import pointers')
  }

  private forgetGone(): void {
    if (this.pools.length === this.defaults.length) return
    for (const pool of this.pools) if (pool.gone) this.shareables.forget(pool)
    this.pools = this.pools.filter(pool => !pool.gone)
  }

  private deviceAt(locationType: number, locationId: number): SimulatedDevice {
    const device = locationType === CU_MEM_LOCATION_TYPE_DEVICE ? this.devices[locationId] : undefined
    if (device === undefined) throw this.interceptor.invalid(`no location ${locationId} of type ${locationType}`)
    return device
  }
}

function isHost(locationType: number): boolean {
  return locationType === CU_MEM_LOCATION_TYPE_HOST || locationType === CU_MEM_LOCATION_TYPE_HOST_NUMA
}
