// Where segments come from: device memory, or managed memory, which may lie in host memory and be larger than the
// device. Pinned host memory is a source too (pinned-segments.ts).

import { MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { CU_MEM_ATTACH_GLOBAL } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { GrowthLimits } from './backing.js'
import { ManagedAccess, type MemoryAccess, PlainAccess } from './memory-access.js'

/** Allocates and frees segments. */
export interface SegmentSource {
  readonly kind: 'segments' | 'managed' | 'registrable' | 'pinned'
  /** the least size of a segment; sizes are multiples of `granuleBytes` */
  readonly leastBytes: number
  readonly granuleBytes: number
  /** all memory of this kind, which is the limit of a pool without one */
  readonly totalBytes: number
  /** whether idle memory is worth gathering before the pool grows */
  readonly isWorthGathering: boolean
  /** The address of a new segment; 0, or the driver's CudaError, when there is no room for it. */
  obtain(bytes: number): number
  /** Takes back a segment; no work may use it. After an error the segment is as before. */
  giveBack(address: number): void
  /** Gives back former segments that the driver has not taken back entirely so far; throws its error. */
  releaseRest?(): void
  /** the devices that reach the segments */
  readonly access: MemoryAccess
}

const SEGMENT_BYTES = 2 * MiB

/** Segments of device memory, by cuMemAlloc. */
export function deviceSegments(context: Context): SegmentSource {
  return {
    kind: 'segments',
    leastBytes: SEGMENT_BYTES,
    granuleBytes: SEGMENT_BYTES,
    totalBytes: context.activate().cuDeviceTotalMem(context.device),
    isWorthGathering: true,
    obtain: bytes => context.activate().cuMemAlloc(bytes),
    giveBack: address => context.activate().cuMemFree(address),
    access: new PlainAccess(context),
  }
}

/**
 * Segments of managed memory. Managed memory beyond the device's slows down every access, so a pool grows that large
 * only with an explicit limit. Throws PoolError if the device has no managed memory.
 */
export function managedSegments(context: Context, { maxPoolBytes }: GrowthLimits): SegmentSource {
  const driver = context.activate()
  if (context.attribute('CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY') !== 1) {
    throw new PoolError(
      "backing 'managed' is not possible here: the device has no managed memory; use 'auto', and copies or a mapped host pool for what the host reads and writes",
      'ERR_NOT_SUPPORTED',
    )
  }
  return {
    ...deviceSegments(context),
    kind: 'managed',
    totalBytes: Number.isFinite(maxPoolBytes) ? maxPoolBytes : driver.cuDeviceTotalMem(context.device),
    obtain: bytes => context.activate().cuMemAllocManaged(bytes, CU_MEM_ATTACH_GLOBAL),
    access: new ManagedAccess(context),
  }
}
