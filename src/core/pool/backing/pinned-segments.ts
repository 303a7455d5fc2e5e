// Pinned host memory in segments: array buffers registered with the driver once, whose blocks are views. The driver
// pins whole pages, so a segment consists of whole pages, and shares none with other memory of the process.

import { totalmem } from 'node:os'
import { markAsUntransferable } from 'node:worker_threads'
import { KiB } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import { CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, RESULT } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import { PlainAccess } from './memory-access.js'
import type { SegmentSource } from './segment-source.js'

export const PAGE_BYTES = 64 * KiB // the largest page of the supported systems; most have 4 KiB

/** Finds the memory of pinned buffers. */
export interface PinnedMemory {
  /**
   * A view of the memory at an address that lies in a segment. Throws PoolError when the segment is no longer pinned.
   */
  bytesAt(address: number, byteLength: number): Uint8Array
  /** The device's address for a host address. */
  devicePtrAt(address: number): number
}

/** A segment, as sent to another thread. */
export interface SentSegment {
  readonly address: number
  readonly bytes: Uint8Array
}

interface Segment {
  readonly memory: Uint8Array
  /** null until first needed */
  devicePtr: number | null
}

/** Keeps registered memory from the garbage collector, also if its device is dropped without a close. */
const registered = new Set<Uint8Array>()

export class PinnedSegments implements SegmentSource, PinnedMemory {
  readonly kind = 'pinned'
  readonly leastBytes: number
  readonly granuleBytes = PAGE_BYTES
  readonly totalBytes = totalmem()
  readonly isWorthGathering = false // a host has more memory than a device
  readonly access: PlainAccess
  /** by host address */
  private readonly segments = new Map<number, Segment>()

  constructor(
    private readonly context: Context,
    segmentBytes: number,
    private readonly shared: boolean,
    private readonly mapped: boolean,
  ) {
    this.access = new PlainAccess(context)
    this.leastBytes = Math.max(PAGE_BYTES, Math.floor(segmentBytes / PAGE_BYTES) * PAGE_BYTES)
  }

  obtain(bytes: number): number {
    const driver = this.context.activate()
    const memory = this.allocate(bytes)
    if (memory === null) return 0
    try {
      driver.cuMemHostRegister(memory, CU_MEMHOSTREGISTER_PORTABLE | (this.mapped ? CU_MEMHOSTREGISTER_DEVICEMAP : 0))
    } catch (error) {
      if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_NOT_SUPPORTED) throw error
      throw new PoolError(
        `this device or system cannot pin host memory (${error.message}); use ordinary arrays with buffer.write and readSync`,
        'ERR_NOT_SUPPORTED',
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

  /** All segments, for threads that share the pool. */
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
    throw new PoolError('the memory is no longer pinned: its pool is closed', 'ERR_POOL_CLOSED')
  }

  /** Whole pages of a new array buffer; null if JavaScript cannot allocate it. */
  private allocate(bytes: number): Uint8Array | null {
    try {
      const roomy = new Uint8Array(new (this.shared ? SharedArrayBuffer : ArrayBuffer)(bytes + PAGE_BYTES))
      // If a program transferred the buffer to a worker, the pool's views would be empty.
      if (!this.shared) markAsUntransferable(roomy.buffer)
      const skipped = PAGE_BYTES - (this.context.activate().hostAddress(roomy) % PAGE_BYTES)
      return roomy.subarray(skipped, skipped + bytes)
    } catch (error) {
      if (error instanceof RangeError) return null
      throw error
    }
  }
}
