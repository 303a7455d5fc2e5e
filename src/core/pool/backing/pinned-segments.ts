// Pinned host memory in segments: array buffers registered with the driver once, whose blocks are views. The driver
// pins whole pages, so a segment consists of whole pages, and shares none with other memory of the process.
//
// Much of the time that pinning takes goes into finding pages and clearing them. `prepare` leaves that to another
// thread: it needs no context, no driver and no capture mode, so nothing is lost when the pool closes meanwhile. The
// rest, the call of the driver, stays in this thread (docs/internals/decisions.md#0033-the-pages-of-pinned-memory).

import { totalmem } from 'node:os'
import { markAsUntransferable } from 'node:worker_threads'
import { KiB } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import { CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, RESULT } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import { PlainAccess } from './memory-access.js'
import type { SegmentSource } from './segment-source.js'

export const PAGE_BYTES = 64 * KiB // the largest page of the supported systems; most have 4 KiB

/** Finds the memory of pinned buffers, and prepares memory for more. */
export interface PinnedMemory {
  /** the NUMA node that the memory lies on; -1 for any */
  readonly numaNode: number
  /** The segment that an address lies in. Throws PoolError when it is no longer pinned. */
  segmentAt(address: number): HostSegment
  /** A view of the memory at an address. Throws like `segmentAt`. */
  bytesAt(address: number, byteLength: number): Uint8Array
  /** The device's address for a host address. */
  devicePtrAt(address: number): number
  /** Memory with all of its pages, for a segment of at least `bytes`; null in a pool of several threads. */
  prepare(bytes: number): Promise<Uint8Array | null>
  /** The result of `grow`. If it needs a new segment, that is made of `prepared`, unless this is too small. */
  growWith<R>(prepared: Uint8Array | null, grow: () => R): R
}

/** How memory is pinned; can be sent to another thread. */
export interface PinnedOptions {
  /** bytes of the first segment; a later one is as large as all before it together */
  readonly firstBytes: number
  /** the most bytes of a segment, except for a larger request */
  readonly segmentBytes: number
  /** whether kernels can use it */
  readonly mapped: boolean
  /** the NUMA node that it lies on, as by `nodeOf` of core/driver/host-node.ts; -1 for any */
  readonly numaNode: number
}

/** A segment; can be sent to another thread. */
export interface HostSegment {
  /** as the driver knows it; that of the simulated driver is not the host's */
  readonly address: number
  readonly bytes: Uint8Array
}

interface Segment extends HostSegment {
  /** null until first needed */
  devicePtr: number | null
}

/** The parts of a pool of pinned memory that `prepareFor` needs. */
interface GrowingPool {
  readonly memory: PinnedMemory
  stats(): { readonly reservedBytes: number; readonly maxPoolBytes: number }
}

/** Memory for `bytes` more, to pass to `growWith`; null if none are wanted, or the limit does not allow them. */
export async function prepareFor(pool: GrowingPool, bytes: number): Promise<Uint8Array | null> {
  const { reservedBytes, maxPoolBytes } = pool.stats()
  const wholeBytes = Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES
  if (wholeBytes <= 0 || reservedBytes + wholeBytes > maxPoolBytes) return null
  return await pool.memory.prepare(wholeBytes)
}

/** Keeps registered memory from the garbage collector, also if its device is dropped without a close. */
const registered = new Set<Uint8Array>()

export class PinnedSegments implements SegmentSource, PinnedMemory {
  readonly kind = 'pinned'
  readonly granuleBytes = PAGE_BYTES
  readonly totalBytes = totalmem()
  readonly isWorthGathering = false // a host has more memory than a device
  readonly access: PlainAccess
  /** by host address */
  private readonly segments = new Map<number, Segment>()
  private pinnedBytes = 0
  /** the memory of the next segment */
  private prepared: Uint8Array | null = null

  constructor(
    private readonly context: Context,
    private readonly shared: boolean,
    private readonly options: PinnedOptions,
  ) {
    this.access = new PlainAccess(context)
  }

  get numaNode(): number {
    return this.options.numaNode
  }

  get leastBytes(): number {
    if (this.prepared !== null) return this.prepared.byteLength
    const { firstBytes, segmentBytes } = this.options
    const bytes = Math.min(segmentBytes, Math.max(firstBytes, this.pinnedBytes))
    return Math.max(PAGE_BYTES, Math.floor(bytes / PAGE_BYTES) * PAGE_BYTES)
  }

  async prepare(bytes: number): Promise<Uint8Array | null> {
    const memory = this.allocate(Math.max(bytes, this.leastBytes))
    if (memory !== null) await this.context.driver.fillHost(memory)
    return memory
  }

  growWith<R>(prepared: Uint8Array | null, grow: () => R): R {
    this.prepared = prepared
    try {
      return grow()
    } finally {
      if (this.prepared !== null) this.context.driver.unplaceHost(this.prepared)
      this.prepared = null
    }
  }

  obtain(bytes: number): number {
    const driver = this.context.activate()
    const memory = this.takePrepared(bytes) ?? this.allocate(bytes)
    if (memory === null) return 0
    const { mapped } = this.options
    try {
      driver.cuMemHostRegister(memory, CU_MEMHOSTREGISTER_PORTABLE | (mapped ? CU_MEMHOSTREGISTER_DEVICEMAP : 0))
    } catch (error) {
      driver.unplaceHost(memory)
      if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_NOT_SUPPORTED) throw error
      throw new PoolError(
        `this device or system cannot pin host memory (${error.message}); use ordinary arrays with buffer.write and readSync`,
        'ERR_NOT_SUPPORTED',
      )
    }
    registered.add(memory)
    const address = driver.hostAddress(memory)
    this.segments.set(address, { address, bytes: memory, devicePtr: null })
    this.pinnedBytes += bytes
    return address
  }

  giveBack(address: number): void {
    const { bytes: memory } = this.segments.get(address)!
    const driver = this.context.activate()
    driver.cuMemHostUnregister(memory)
    driver.unplaceHost(new Uint8Array(memory.buffer)) // more than the segment if the limit left less
    registered.delete(memory)
    this.segments.delete(address)
    this.pinnedBytes -= memory.byteLength
  }

  bytesAt(address: number, byteLength: number): Uint8Array {
    const { address: base, bytes } = this.segmentAt(address)
    return bytes.subarray(address - base, address - base + byteLength)
  }

  /** All segments, for threads that share the pool. */
  all(): HostSegment[] {
    return [...this.segments.values()].map(({ address, bytes }) => ({ address, bytes }))
  }

  devicePtrAt(address: number): number {
    if (!this.options.mapped) {
      throw new PoolError('devicePtr: the memory is not mapped; make the pool with createHostPool({ mapped: true })')
    }
    const segment = this.segmentAt(address)
    segment.devicePtr ??= this.context.activate().cuMemHostGetDevicePointer(segment.bytes)
    return segment.devicePtr + address - segment.address
  }

  segmentAt(address: number): Segment {
    for (const segment of this.segments.values()) {
      if (address >= segment.address && address < segment.address + segment.bytes.byteLength) return segment
    }
    throw new PoolError('the memory is no longer pinned: its pool is closed', 'ERR_POOL_CLOSED')
  }

  private takePrepared(bytes: number): Uint8Array | null {
    const { prepared } = this
    if (prepared === null || prepared.byteLength < bytes) return null
    this.prepared = null
    return prepared.subarray(0, bytes)
  }

  /** Whole pages of a new array buffer, on the node; null if JavaScript cannot allocate it. */
  private allocate(bytes: number): Uint8Array | null {
    const driver = this.context.activate()
    try {
      const roomy = new Uint8Array(new (this.shared ? SharedArrayBuffer : ArrayBuffer)(bytes + PAGE_BYTES))
      // If a program transferred the buffer to a worker, the pool's views would be empty.
      if (!this.shared) markAsUntransferable(roomy.buffer)
      const skipped = PAGE_BYTES - (driver.hostAddress(roomy) % PAGE_BYTES)
      const memory = roomy.subarray(skipped, skipped + bytes)
      driver.placeHost(memory, this.options.numaNode)
      return memory
    } catch (error) {
      if (error instanceof RangeError) return null
      throw error
    }
  }
}
