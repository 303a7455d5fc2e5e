// Linear memory, which belongs to a context until cuMemFree: cuMemAlloc's device memory, and managed memory.
// Simulated managed memory always lies in host memory. It never migrates, all devices have access, and it takes no
// device memory. calls.ts uses it.

import { CU_MEM_ATTACH_GLOBAL, RESULT } from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'
import type { SimulatedContext } from '../context.js'
import type { PhysicalMemory } from '../device.js'
import { type AccessRights, EVERY_DEVICE } from './access-rights.js'
import type { AddressRegion, AddressSpace } from './address-space.js'

const UNIT_BYTES = 512
const CU_MEM_ATTACH_HOST = 2

type LinearRegion = AddressRegion & { readonly memory: PhysicalMemory; readonly owner: SimulatedContext }

/** The linear memory of all contexts. */
export class LinearMemory {
  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly space: AddressSpace,
    private readonly host: PhysicalMemory,
  ) {}

  allocate(context: SimulatedContext, bytes: number): number {
    return this.take(context, bytes, context.device, context.access)
  }

  allocateManaged(context: SimulatedContext, bytes: number, flags: number): number {
    if (flags !== CU_MEM_ATTACH_GLOBAL && flags !== CU_MEM_ATTACH_HOST) {
      throw this.interceptor.invalid(`the flags say global or host, not ${flags}`)
    }
    return this.take(context, bytes, this.host, EVERY_DEVICE)
  }

  /** The allocation that begins at `ptr`. */
  find(ptr: number): LinearRegion | undefined {
    const region = this.space.find(ptr)
    return region?.base === ptr && region.owner !== null ? (region as LinearRegion) : undefined
  }

  /** Refuses a range that is not within one managed allocation. */
  checkManaged(ptr: number, bytes: number): void {
    this.interceptor.checkSize(bytes, 1)
    const region = this.space.find(ptr)
    const isManaged = region !== undefined && region.owner !== null && region.memory === this.host
    if (isManaged && ptr + bytes <= region.base + region.bytes) return
    throw this.interceptor.invalid(`${bytes} bytes from 0x${ptr.toString(16)} are not managed memory`)
  }

  release(region: LinearRegion): void {
    region.memory.give(roundUp(region.bytes))
    this.space.release(region)
  }

  /** Frees all linear memory of a context that ends. */
  releaseOf(context: SimulatedContext): void {
    for (const region of this.space.ownedBy(context)) this.release(region as LinearRegion)
  }

  private take(
    context: SimulatedContext,
    bytes: number,
    memory: PhysicalMemory,
    access: Readonly<AccessRights>,
  ): number {
    this.interceptor.checkSize(bytes, 1)
    const contents = memory.take(roundUp(bytes))
    const region = contents === null ? null : this.space.claim(bytes)
    if (contents === null || region === null) {
      if (contents !== null) memory.give(roundUp(bytes))
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    }
    this.interceptor.payFor(bytes)
    region.hold(memory, contents, access)
    region.owner = context
    return region.base
  }
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / UNIT_BYTES) * UNIT_BYTES
}
