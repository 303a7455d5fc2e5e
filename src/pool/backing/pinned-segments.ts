// Pinned host memory in segments: array buffers registered with the driver once, in which blocks are views. The driver
// pins whole pages, so a segment begins and ends where a page does, and shares none with its neighbours in the process.

import { totalmem } from 'node:os'
import { markAsUntransferable } from 'node:worker_threads'
import { KiB } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import { CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, RESULT } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { SegmentSource } from './segment-source.js'

const PAGE_BYTES = 64 * KiB // the largest that the supported systems use; 4 KiB on most

/** Where the memory of pinned buffers is. */
export interface PinnedMemory {
  /** A view of the memory from an address on that lies in a segment. */
  bytesAt(address: number, byteLength: number): Uint8Array
  /** The address under which the device reaches what is at a host address. */
  devicePtrAt(address: number): number
}

/** A segment, for another thread. */
export interface SentSegment {
  readonly address: number
  readonly bytes: Uint8Array
}

interface Segment {
  readonly memory: Uint8Array
  /** null until somebody asks */
  devicePtr: number | null
}

/** Memory that is registered must not be collected, also when its device is dropped without a close. */
const registered = new Set<Uint8Array>()

export class PinnedSegments implements SegmentSource, PinnedMemory {
  readonly kind = 'pinned'
  readonly leastBytes: number
  readonly stepBytes = PAGE_BYTES
  readonly totalBytes = totalmem()
  /** by address */
  private readonly segments = new Map<number, Segment>()

  constructor(
    private readonly context: Context,
    segmentBytes: number,
    private readonly shared: boolean,
    private readonly mapped: boolean,
  ) {
    this.leastBytes = Math.max(PAGE_BYTES, Math.floor(segmentBytes / PAGE_BYTES) * PAGE_BYTES)
  }

  obtain(bytes: number): number {
    const driver = this.context.activate()
    const memory = this.allocate(bytes)
    if (memory === null) return 0
    try {
      driver.cuMemHostRegister(memory, CU_MEMHOSTREGISTER_PORTABLE | (this.mapped ? CU_MEMHOSTREGISTER_DEVICEMAP : 0))
    } catch (error) {
      if (!(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_NOT_SUPPORTED) throw error
      throw new PoolError(
        `this device or system cannot pin host memory (${error.message}); use ordinary arrays with buffer.write and readSync`,
      )
    }
    registered.add(memory)
    const address = driver.hostAddress(memory)
    this.segments.set(address, { memory, devicePtr: null })
    return address
  }

  giveBack(address: number): void {
    const { memory } = this.segments.get(address)!
    this.context.activate().cuMemHostUnregister(memory)
    registered.delete(memory)
    this.segments.delete(address)
  }

  bytesAt(address: number, byteLength: number): Uint8Array {
    const [base, { memory }] = this.segmentAt(address)
    return memory.subarray(address - base, address - base + byteLength)
  }

  /** For threads that share the pool. */
  all(): SentSegment[] {
    return [...this.segments].map(([address, { memory }]) => ({ address, bytes: memory }))
  }

  devicePtrAt(address: number): number {
    if (!this.mapped) {
      throw new PoolError('devicePtr: the memory is not mapped; make the pool with createHostPool({ mapped: true })')
    }
    const [base, segment] = this.segmentAt(address)
    segment.devicePtr ??= this.context.activate().cuMemHostGetDevicePointer(segment.memory)
    return segment.devicePtr + address - base
  }

  private segmentAt(address: number): [base: number, segment: Segment] {
    for (const [base, segment] of this.segments) {
      if (address >= base && address < base + segment.memory.byteLength) return [base, segment]
    }
    throw new PoolError('the memory is no longer pinned: its pool is closed')
  }

  /** Whole pages of a new array buffer; null when JavaScript has no room for it. */
  private allocate(bytes: number): Uint8Array | null {
    try {
      const roomy = new Uint8Array(new (this.shared ? SharedArrayBuffer : ArrayBuffer)(bytes + PAGE_BYTES))
      // A buffer that is transferred to a worker would leave the pool with views of nothing.
      if (!this.shared) markAsUntransferable(roomy.buffer)
      const skipped = PAGE_BYTES - (this.context.activate().hostAddress(roomy) % PAGE_BYTES)
      return roomy.subarray(skipped, skipped + bytes)
    } catch (error) {
      if (error instanceof RangeError) return null
      throw error
    }
  }
}
