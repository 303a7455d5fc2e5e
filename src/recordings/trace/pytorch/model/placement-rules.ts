// The rules of PyTorch's allocator under given settings: how sizes are rounded, which block may serve a request, what
// is split off, and how much memory is obtained at once.

import { MiB } from '../../../../core/base/bytes.js'
import { MOST_SMALL_BYTES, ROUNDING_BYTES, roundUp } from './policy-blocks.js'
import type { PytorchSettings } from './pytorch-settings.js'
import { DIVISION_INTERVALS, LARGE_SEGMENT_BYTES } from './setting-values.js'

const SMALL_SEGMENT_BYTES = 2 * MiB
/** From this size on a segment serves one request, rounded up to 2 MiB. */
const LEAST_OWN_SEGMENT_BYTES = 10 * MiB
const OWN_SEGMENT_ROUNDING_BYTES = 2 * MiB

/** The most bytes that stay with a large block, because they are too few to split off. */
export const MOST_UNSPLIT_BYTES = MOST_SMALL_BYTES

/** The bytes that PyTorch obtains from the device when no free block fits a request of `rounded` bytes. */
export function pytorchSegmentBytes(rounded: number, largeSegmentBytes = LARGE_SEGMENT_BYTES): number {
  if (rounded <= MOST_SMALL_BYTES) return SMALL_SEGMENT_BYTES
  if (rounded < LEAST_OWN_SEGMENT_BYTES) return largeSegmentBytes
  return roundUp(rounded, OWN_SEGMENT_ROUNDING_BYTES)
}

/** Whether the policy splits `restBytes` off a block by default, so that another request may have them. */
export function worthSplitting(restBytes: number, small: boolean): boolean {
  return small ? restBytes >= ROUNDING_BYTES : restBytes > MOST_UNSPLIT_BYTES
}

/** Whether the blocks of a segment are small ones. */
export function isSmallSegment(bytes: number): boolean {
  return bytes <= SMALL_SEGMENT_BYTES
}

export class PlacementRules {
  readonly expandable: boolean
  /** the most addresses of an expandable segment, before it is rounded up to whole pages */
  readonly reserveBytes: number
  readonly garbageCollectionThreshold: number
  /** blocks of at least this size are not split */
  readonly maxSplitBytes: number
  private readonly largeSegmentBytes: number
  private readonly maxNonSplitRoundingBytes: number
  private readonly divisions: readonly number[] | null

  constructor(settings: PytorchSettings = {}) {
    this.expandable = settings.expandableSegments ?? false
    this.reserveBytes = Math.floor(settings.expandableReserveBytes ?? Infinity)
    this.largeSegmentBytes = settings.largeSegmentBytes ?? LARGE_SEGMENT_BYTES
    this.garbageCollectionThreshold = settings.garbageCollectionThreshold ?? 0
    this.maxSplitBytes = settings.maxSplitBytes ?? Infinity
    this.maxNonSplitRoundingBytes = settings.maxNonSplitRoundingBytes ?? this.largeSegmentBytes
    this.divisions = settings.roundupPower2Divisions ?? null
  }

  /** The bytes of a block for a request. */
  round(bytes: number): number {
    if (this.divisions !== null && bytes > ROUNDING_BYTES) {
      const power = Math.floor(Math.log2(bytes))
      const count = this.divisions[Math.min(DIVISION_INTERVALS - 1, Math.max(0, power - LOG2_OF_MIB))]
      if (count > 1 && bytes > ROUNDING_BYTES * count) return roundUp(bytes, 2 ** power / count)
    }
    return Math.max(ROUNDING_BYTES, roundUp(bytes, ROUNDING_BYTES))
  }

  /** The bytes of a segment for a request of `rounded` bytes. */
  segmentBytes(rounded: number): number {
    return pytorchSegmentBytes(rounded, this.largeSegmentBytes)
  }

  /** The bytes that expandable segments map at once. */
  pageBytes(small: boolean): number {
    return small ? SMALL_SEGMENT_BYTES : this.largeSegmentBytes
  }

  /** Whether the best free block that fits may serve a request of `rounded` bytes. */
  mayServe(blockBytes: number, rounded: number): boolean {
    if (rounded < this.maxSplitBytes) return blockBytes < this.maxSplitBytes
    return blockBytes < rounded + this.maxNonSplitRoundingBytes
  }

  /** Whether the rest of a block that serves a request of `rounded` bytes becomes a free block. */
  splits(restBytes: number, rounded: number, small: boolean): boolean {
    if (this.expandable) return restBytes >= ROUNDING_BYTES
    return worthSplitting(restBytes, small) && (small || rounded < this.maxSplitBytes)
  }
}

const LOG2_OF_MIB = 20
