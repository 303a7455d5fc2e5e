// The memory of a caching pool. A backing adds memory to the pool's two heaps, takes idle memory out again, and knows
// the address of every range. It grows only after the pool has tried everything else.

import { OutOfRangeError } from '../../base/argument-errors.js'
import { formatBytes, MiB } from '../../base/bytes.js'
import { CudaError } from '../../base/errors.js'
import { RESULT } from '../../driver/constants.js'
import type { Admission } from '../../heap/free-run.js'
import type { SegregatedFit } from '../../heap/segregated-fit.js'
import { classOf, MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import { policy } from '../policy.js'
import type { MemoryAccess } from './memory-access.js'
import type { GranuleLastUses, ViewUses } from './pieces/last-uses.js'
import type { PoolSegment, SegmentWatch } from './segment-watch.js'

/** Smaller blocks come from the small heap, so that a long-lived small block does not keep a large run apart. */
export const SMALL_UNITS = policy.smallBytes / UNIT_BYTES
/** Small blocks have size classes below this. */
export const SMALL_CLASSES = classOf(SMALL_UNITS)
/**
 * With mapped memory: the range of the heap for small blocks and the home range, which have the same addresses, and
 * the first range that is a view.
 */
export const SMALL_RANGE = 0
export const HOME_RANGE = 1
export const FIRST_VIEW_RANGE = 2
/** The largest alignment that every backing gives. */
export const MOST_ALIGNMENT_BYTES = 2 * MiB

/** The two heaps of a pool, which a backing adds memory to. */
export interface Heaps {
  readonly small: SegregatedFit
  readonly large: SegregatedFit
  /** whether other threads can change them while the driver is called */
  readonly isShared: boolean
  /** Where the last uses of mapped memory are noted, of `granules` in the range with that number. */
  mappedUses(granules: number, granuleUnits: number): MappedUses
}

/** The last uses of memory that is mapped piece by piece. */
export interface MappedUses {
  readonly granules: GranuleLastUses
  readonly views: ViewUses
}

/** Limits on the growth of a backing. */
export interface GrowthLimits {
  /** bytes that the pool may reserve; Infinity for all of the device */
  readonly maxPoolBytes: number
  /** bytes of the device that growth leaves free */
  readonly leaveFreeBytes: number
  /** idle memory above this is given back */
  readonly releaseThresholdBytes: number
}

/** Where a pool's memory comes from: granules that are mapped, segments, or slabs. */
export interface Backing {
  readonly kind: 'virtual' | 'segments' | 'managed' | 'registrable' | 'pinned'
  /** bytes taken from the device are a multiple of this */
  readonly granuleBytes: number
  /** the most bytes that it may reserve; each growth reads it anew */
  maxPoolBytes: number
  /** the most pieces that it may have, if it has that many now; 0 otherwise */
  readonly mostPieces: number
  /** bytes taken from the device, used or not */
  readonly reservedBytes: number
  /** the highest value of `reservedBytes` */
  peakReservedBytes: number
  /** the device address of unit 0, by range */
  readonly bases: readonly number[]
  /** how often `bases` has changed */
  readonly baseChanges: number
  /**
   * Takes a block of `heap` that lies on new memory of the device, and on free blocks that `admission` admits; as
   * `heap.allocate` does. Returns 0 when the limit, `mostBytes` or the device allows no more. Throws CudaError for any
   * other refusal; no memory is lost then. Mapped memory takes `leastBytes` of new memory if the place and the
   * limits allow it, also beyond `mostBytes`.
   */
  grow(
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    admission: Admission,
    mostBytes: number,
    leastBytes?: number,
  ): number
  /** bytes of a growth, and idle bytes that are not worth gathering; Infinity where gathering never pays */
  readonly growthStepBytes: number
  /** Takes a block of free memory that is contiguous in a view, without the driver; or returns 0. */
  takeInView(units: number, alignUnits: number, admission: Admission): number
  /**
   * As `grow`, for a block of free memory in several places, which a new view makes contiguous, and of up to
   * `mostBytes - reservedBytes` of new memory.
   */
  stitch(units: number, alignUnits: number, admission: Admission, mostBytes: number): number
  /** Whether old views may have to go before `stitch` makes a new one. */
  readonly isCrowded: boolean
  /** The free blocks that `stitch` would use; none if it would take no block. */
  stitchedBlocks(units: number, alignUnits: number, admission: Admission, mostBytes: number): readonly number[]
  /**
   * Whether `grow` or `stitch` would succeed with `newBytes` from the device, if the host had seen all stamps up to
   * `settled` complete (by key). May be true although the driver would refuse.
   */
  couldGrow(
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    admission: Admission,
    settled: Admission,
    newBytes: number,
  ): boolean
  /** Gives idle memory back to the device until at most `keepBytes` are reserved, or none is idle. */
  trim(keepBytes: number): void
  /** the devices that reach the memory */
  readonly access: MemoryAccess
  /** tells of new segments and of those that go */
  readonly watch: SegmentWatch
  /** All memory that buffers can lie on. */
  segments(): PoolSegment[]
  /** The ranges that contain an address. */
  rangesAt(ptr: number): readonly number[]
  /** Gives all memory back; no work may be pending. */
  close(): void
  /** Asserts that the backing and the heaps agree. */
  check(): void
}

/**
 * The most bytes that a pool may reserve on a device of `totalBytes`. Without a limit that is `totalBytes`, so that a
 * larger request is refused before the driver is called; units must be able to count it, too. Throws RangeError if
 * the limit is less than one step of the backing.
 */
export function mostReservedBytes(maxPoolBytes: number, granuleBytes: number, totalBytes: number): number {
  if (maxPoolBytes >= granuleBytes) return Math.min(maxPoolBytes, totalBytes, MAX_UNITS * UNIT_BYTES)
  throw new OutOfRangeError(
    `maxPoolBytes must be at least ${formatBytes(granuleBytes)}, which this device gives at a time, not ${formatBytes(maxPoolBytes)}`,
  )
}

/** Whether an error is the driver's out of memory. */
export function isOutOfMemory(error: unknown): boolean {
  return error instanceof CudaError && error.result === RESULT.CUDA_ERROR_OUT_OF_MEMORY
}
