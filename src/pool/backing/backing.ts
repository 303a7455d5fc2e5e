// Where a pool's memory comes from. A backing adds memory to the pool's two heaps, takes idle memory out of them again,
// and knows the address of every range. It grows only after the pool has tried everything else.

import { formatBytes, MiB } from '../../base/bytes.js'
import { CudaError } from '../../base/errors.js'
import { RESULT } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { Admission, FreeRun } from '../../heap/free-run.js'
import type { SegregatedFit } from '../../heap/segregated-fit.js'
import { classOf, MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { PoolAccess } from '../access.js'
import type { GranuleUses } from './granule-uses.js'

/** Blocks below this come from the small heap, so that a long-lived small block does not pin a large hole. */
export const SMALL_UNITS = MiB / UNIT_BYTES
/** Their size classes are below this. */
export const SMALL_CLASSES = classOf(SMALL_UNITS)
/** The largest alignment that every backing gives. */
export const MOST_ALIGNMENT_BYTES = 2 * MiB

export interface Heaps {
  readonly small: SegregatedFit
  readonly large: SegregatedFit
  /** whether other threads can change them while the driver is called */
  readonly isShared: boolean
  /** Where the last uses of a range of memory that moves are noted. */
  usesOf(range: number, granules: number, granuleUnits: number): GranuleUses
}

/** How far a backing may grow. */
export interface GrowthLimits {
  readonly limitBytes: number
  readonly leaveFreeBytes: number
}

export interface Backing {
  readonly kind: 'virtual' | 'segments' | 'managed' | 'pinned'
  /** what it takes from the device is a multiple of this */
  readonly stepBytes: number
  /** what it may reserve at most */
  readonly limitBytes: number
  /** how many pieces of memory it has, where that is as many as it can; 0 otherwise */
  readonly mostPieces: number
  readonly reservedBytes: number
  peakReservedBytes: number
  /** by range: the device address of its unit 0 */
  readonly bases: readonly number[]
  /**
   * Finds memory for a block of `heap`, recycling idle memory before asking the device; the block, which may lie on free
   * blocks that are admitted, is taken as by `heap.allocate`. 0 when the limit, `mostBytes` or the device allows no more. Throws CudaError for any other refusal, with
   * nothing lost.
   */
  grow(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission, mostBytes: number): number
  /** Where `grow` would put such a block among free blocks and holes; null where it takes a segment of its own. */
  runFor(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission): FreeRun | null
  /**
   * Whether `grow` would find memory with `newBytes` from the device, if the host had seen complete, by key, all stamps up to
   * `settled`. May say yes where the driver would not.
   */
  couldGrow(
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    admission: Admission,
    settled: Admission,
    newBytes: number,
  ): boolean
  /** Gives idle memory back to the device until at most `keepBytes` are reserved, or nothing more is idle. */
  trim(keepBytes: number): void
  /** Lets another device use the memory, all that there is at any time, or no longer. Throws what the driver throws, with nothing promised then. */
  changeAccess(peer: Context, access: PoolAccess): void
  /** Whether work of `context` can use the memory. */
  reachableFrom(context: Context): boolean
  /** the contexts of other devices whose work may be using the memory */
  readonly peers: readonly Context[]
  /** The range that an address lies in, or -1. */
  rangeAt(ptr: number): number
  /** Gives everything back; no work may be pending. */
  close(): void
  /** Asserts that the backing and the heaps tell one story. */
  check(): void
}

/**
 * What a pool may reserve in all, where there is `totalBytes`: without a limit no more than that, so that a request
 * beyond it is refused before anything is taken, and no more than units can be counted. Refuses a limit below what a
 * backing takes from the device at a time.
 */
export function mostReservedBytes({ limitBytes }: GrowthLimits, stepBytes: number, totalBytes: number): number {
  if (limitBytes >= stepBytes) return Math.min(limitBytes, totalBytes, MAX_UNITS * UNIT_BYTES)
  throw new RangeError(
    `maxPoolBytes must be at least ${formatBytes(stepBytes)}, which this device gives at a time, not ${formatBytes(limitBytes)}`,
  )
}

/** What the driver may answer when it has no memory left. */
export function isOutOfMemory(error: unknown): boolean {
  return error instanceof CudaError && error.code === RESULT.CUDA_ERROR_OUT_OF_MEMORY
}
