// Segments that NCCL can register: each is one handle of the driver, mapped once and whole at addresses of its own.
// NCCL before 2.29 shares only the mapping that the first address lies in, so memory of several mappings would give
// wrong addresses on another device. The table by version is 0030 in docs/internals/decisions.md.
//
// The handle is released once it is mapped: the mapping keeps the memory. So an address and a length are enough to
// give a segment back, from any thread.

import { MiB } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import {
  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
  CU_MEM_HANDLE_TYPE_FABRIC,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  type DEVICE_ATTRIBUTE,
  RESULT,
} from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { Driver } from '../../driver/driver.js'
import { isUnsupported } from '../../driver/unsupported.js'
import { relaxed } from '../../order/relaxed.js'
import { MappedAccess } from './mapped-access.js'
import type { SegmentSource } from './segment-source.js'
import { virtualMemoryObstacle } from './virtual-memory.js'

/** The least granule that libraries take, whatever the device recommends. */
const LEAST_BYTES = 2 * MiB

/** Throws PoolError if the device has no memory that can be registered. */
export function checkRegistrable(context: Context): void {
  const isShareable = has(context, 'CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED')
  const obstacle =
    virtualMemoryObstacle(context) ?? (isShareable ? null : 'the device cannot share memory as file descriptors')
  if (obstacle === null) return
  throw new PoolError(
    `backing 'registrable' is not possible here: ${obstacle}; leave backing out: libraries then copy through memory of their own`,
    'ERR_NOT_SUPPORTED',
  )
}

/** One handle, mapped whole at addresses of its own, or a part of that. */
export class WholeMapping {
  /** 0 without addresses */
  ptr = 0
  /** 0 for none, also once the mapping keeps the memory */
  handle = 0
  isMapped = false

  constructor(readonly bytes: number) {}

  /** A mapping that was made in another thread. */
  static at(ptr: number, bytes: number): WholeMapping {
    return Object.assign(new WholeMapping(bytes), { ptr, isMapped: true })
  }

  /** No work may use the memory. Throws the driver's error, and leaves the mapping as it is. */
  unmap(driver: Driver): void {
    if (this.isMapped) driver.cuMemUnmap(this.ptr, this.bytes)
    this.isMapped = false
  }

  /** Gives back all that there is, as `unmap`; a repetition goes on at the call that the driver has refused. */
  giveBack(driver: Driver): void {
    this.unmap(driver)
    if (this.handle !== 0) driver.cuMemRelease(this.handle)
    this.handle = 0
    if (this.ptr !== 0) driver.cuMemAddressFree(this.ptr, this.bytes)
    this.ptr = 0
  }
}

export class RegistrableSegments implements SegmentSource {
  readonly kind = 'registrable'
  readonly granuleBytes: number
  readonly totalBytes: number
  readonly isWorthGathering = true
  readonly access: MappedAccess
  private handleTypes: number
  private readonly gpuDirectRdma: boolean
  /** by address */
  private readonly segments = new Map<number, WholeMapping>()
  /** being made, or not taken back by the driver so far */
  private readonly rest: WholeMapping[] = []

  constructor(private readonly context: Context) {
    const driver = context.activate()
    const hasFabric = has(context, 'CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED')
    this.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (hasFabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0)
    this.gpuDirectRdma = has(context, 'CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED')
    const { device } = context
    const recommended = driver.cuMemGetAllocationGranularity(
      device,
      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
      this.handleTypes,
    )
    this.granuleBytes = Math.max(LEAST_BYTES, recommended)
    this.totalBytes = driver.cuDeviceTotalMem(device)
    const apply = (peer: number, flags: number) => this.applyAccess(peer, flags)
    this.access = new MappedAccess(context, apply, devicesThatReach(context))
  }

  get leastBytes(): number {
    return this.granuleBytes
  }

  obtain(bytes: number): number {
    this.releaseRest()
    const { rest } = this
    const driver = this.context.activate()
    const mapping = new WholeMapping(bytes)
    rest.push(mapping)
    try {
      mapping.ptr = driver.cuMemAddressReserve(bytes, this.granuleBytes)
      mapping.handle = this.create(bytes)
      driver.cuMemMap(mapping.ptr, bytes, mapping.handle)
      mapping.isMapped = true
      driver.cuMemRelease(mapping.handle)
      mapping.handle = 0
      driver.cuMemSetAccess(mapping.ptr, bytes, this.access.devices)
    } catch (error) {
      this.context.discard(() => this.releaseRest())
      throw error
    }
    rest.pop()
    this.segments.set(mapping.ptr, mapping)
    return mapping.ptr
  }

  giveBack(ptr: number): void {
    const mapping = this.segments.get(ptr)!
    this.segments.delete(ptr)
    try {
      mapping.unmap(this.context.activate())
    } catch (error) {
      this.segments.set(ptr, mapping)
      throw error
    }
    this.rest.push(mapping)
    this.context.discard(() => this.releaseRest())
  }

  releaseRest(): void {
    const { context, rest } = this
    if (rest.length > 0) relaxed(context.activate(), () => this.releaseEach())
  }

  private releaseEach(): void {
    const { rest } = this
    while (rest.length > 0) {
      rest[rest.length - 1].giveBack(this.context.activate())
      rest.pop()
    }
  }

  /** A driver may say that it has fabric handles, and refuse them to a process without an IMEX channel. */
  private create(bytes: number): number {
    const { context, gpuDirectRdma } = this
    const create = () => context.activate().cuMemCreate(bytes, context.device, this.handleTypes, gpuDirectRdma)
    try {
      return create()
    } catch (error) {
      if ((this.handleTypes & CU_MEM_HANDLE_TYPE_FABRIC) === 0 || !isUnsupported(error)) throw error
      this.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
      return create()
    }
  }

  private applyAccess(device: number, flags: number): void {
    const driver = this.context.activate()
    for (const { ptr, bytes } of this.segments.values()) driver.cuMemSetAccess(ptr, bytes, [device], flags)
  }
}

/** The other devices that can be given access to memory of this one, whether or not this process has opened them. */
function devicesThatReach(context: Context): number[] {
  const driver = context.activate()
  const all = Array.from({ length: driver.cuDeviceGetCount() }, (_, ordinal) => driver.cuDeviceGet(ordinal))
  return all.filter(device => device !== context.device && driver.cuDeviceCanAccessPeer(device, context.device))
}

/** Whether an attribute is 1. A driver that is older than the attribute does not know it. */
function has(context: Context, name: keyof typeof DEVICE_ATTRIBUTE): boolean {
  try {
    return context.attribute(name) === 1
  } catch (error) {
    if (error instanceof CudaError && error.result === RESULT.CUDA_ERROR_INVALID_VALUE) return false
    throw error
  }
}
