// How the segments of a segment backing are had from the driver: memory of the device, or managed memory, which may lie
// in the host's and be more than the device has. Pinned host memory is a source too (pinned-segments.ts).

import { MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { CU_MEM_ATTACH_GLOBAL, DEVICE_ATTRIBUTE } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { GrowthLimits } from './backing.js'

export interface SegmentSource {
  readonly kind: 'segments' | 'managed' | 'pinned'
  /** a segment is no smaller, and its size a multiple of `stepBytes` */
  readonly leastBytes: number
  readonly stepBytes: number
  /** all that there is, and so the limit of a pool without one */
  readonly totalBytes: number
  /** The address of a new segment; 0, or a CudaError of the driver's, when there is no room for it. */
  obtain(bytes: number): number
  /** Takes a segment back that no work uses. */
  giveBack(address: number): void
}

const SEGMENT_BYTES = 2 * MiB

/** Plain allocations by the driver. */
export function deviceSegments(context: Context): SegmentSource {
  return {
    kind: 'segments',
    leastBytes: SEGMENT_BYTES,
    stepBytes: SEGMENT_BYTES,
    totalBytes: context.activate().cuDeviceTotalMem(context.device),
    obtain: bytes => context.activate().cuMemAlloc(bytes),
    giveBack: address => context.activate().cuMemFree(address),
  }
}

/**
 * Managed memory. It can be more than the device's, which slows everything down by far, so only a limit that says so lets
 * a pool grow that large. Throws PoolError where the device has none.
 */
export function managedSegments(context: Context, { limitBytes }: GrowthLimits): SegmentSource {
  const driver = context.activate()
  if (driver.cuDeviceGetAttribute(DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, context.device) !== 1) {
    throw new PoolError(
      "backing 'managed' is not possible here: the device has no managed memory; use 'auto', and copies or a mapped host pool for what the host reads and writes",
    )
  }
  return {
    ...deviceSegments(context),
    kind: 'managed',
    totalBytes: Number.isFinite(limitBytes) ? limitBytes : driver.cuDeviceTotalMem(context.device),
    obtain: bytes => context.activate().cuMemAllocManaged(bytes, CU_MEM_ATTACH_GLOBAL),
  }
}
