// The physical memory of a pool, handle by handle. A piece is the memory of one driver handle. It is mapped at its home
// in the home range when it is created, and stays there until it is released. Calls of the driver cost per handle and
// hardly per byte, so a pool has few pieces, of sizes that fit its own.

import { GiB } from '../../../base/bytes.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { leastPiece } from '../../policy.js'

/** A piece need not be longer; see `cut`. */
const MOST_BYTES = GiB

/** One driver handle, mapped at its home. Offsets and sizes are in units. */
export class Piece {
  // Results of the last look at the free memory (see free-ends.ts): how much is free for the asking stream at the
  // start and at the end, and the record in which each of the two begins. A whole free piece has all its units in both.
  startFree = 0
  endFree = 0
  startRecord = 0
  endRecord = 0

  /** of the driver; 0 before the piece is created, and after it was released */
  handle = 0
  /** whether it is mapped at its home */
  isMapped = false
  /** see unmap-once.ts */
  isLeaving = false

  constructor(
    /** of its home, in the home range */
    readonly start: number,
    readonly units: number,
  ) {}

  get bytes(): number {
    return this.units * UNIT_BYTES
  }

  get isFree(): boolean {
    return this.startFree === this.units
  }
}

/**
 * The least units of new pieces, whole granules, in a pool with so much room that will have `reservedBytes` with them.
 */
export function leastPieceUnits(roomBytes: number, reservedBytes: number, granuleUnits: number): number {
  const units = Math.min(MOST_BYTES, leastPiece(roomBytes, reservedBytes)) / UNIT_BYTES
  return Math.max(1, Math.ceil(units / granuleUnits)) * granuleUnits
}

/**
 * Units of the pieces for a run of new memory, in whole granules: all are equal and at least `leastUnits`, but for a
 * shorter last one where granules do not divide evenly. A run shorter than twice `leastUnits` is one piece, since a
 * short piece costs as much as a long one.
 */
export function cut(runUnits: number, leastUnits: number, granuleUnits: number): number {
  const pieces = Math.max(1, Math.floor(runUnits / leastUnits))
  return Math.ceil(runUnits / pieces / granuleUnits) * granuleUnits
}
