// A reserved range of addresses, with physical memory mapped behind its beginning. Memory comes in pieces of one
// driver handle each, and only whole pieces can be unmapped. So the size of pieces decides the cost of a step, and
// how exactly memory can be given back. A piece is at most a quarter of the bytes before it and at most 64 MiB, but
// at least a granule. After a shrink less than that stays mapped too much, while a large step takes few driver calls.
// Growing touches only new pieces, whatever is mapped already.
//
// This class does not know pending work. cuMemUnmap does not wait for work, so the caller must. A call can be cut
// short wherever a function starts. So the result of a driver call is noted without a further call, such as
// Array.push.

import { assert } from '../../base/assert.js'
import { MiB } from '../../base/bytes.js'
import { isDriverError } from '../../base/thrown.js'
import { CU_MEM_HANDLE_TYPE_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE as READWRITE } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import { MOST_ALIGNMENT_BYTES } from './backing.js'
import { MappedAccess } from './mapped-access.js'
import { type PoolSegment, SegmentWatch } from './segment-watch.js'

const PIECE_SHARE = 1 / 4
const MOST_PIECE_BYTES = 64 * MiB

interface Memory {
  readonly bytes: number
  /** the driver's handle */
  readonly handle: number
}

interface Piece extends Memory {
  readonly offset: number
}

export class GrowableRange {
  readonly base: number
  /** bytes from the base with memory, including the rest of a failed growth */
  mappedBytes = 0
  /** bytes from the base that the device may use */
  private usableBytes = 0
  /** the devices that may use it */
  readonly access: MappedAccess
  /** its observer's segments are the pieces */
  readonly watch: SegmentWatch
  protected readonly pieces: Piece[] = []
  /** what devices with access may do */
  private right = READWRITE
  /** memory that is mapped nowhere: about to be mapped or released */
  private readonly unmapped: Memory[] = []

  /**
   * Reserves `capacityBytes` of addresses, a multiple of `granuleBytes`. A range of a pool has the pool's `access`,
   * which calls `applyAccess`, and the pool's `watch`.
   */
  constructor(
    protected readonly context: Context,
    readonly granuleBytes: number,
    readonly capacityBytes: number,
    access: MappedAccess | null = null,
    watch = new SegmentWatch(),
  ) {
    this.base = context.activate().cuMemAddressReserve(capacityBytes, Math.max(granuleBytes, MOST_ALIGNMENT_BYTES))
    this.access = access ?? new MappedAccess(context, (device, flags) => this.applyAccess(device, flags))
    this.watch = watch
  }

  /** Sets one device's access to all memory. */
  applyAccess(device: number, flags: number): void {
    if (this.usableBytes === 0) return
    const right = flags === READWRITE ? this.right : flags
    this.context.activate().cuMemSetAccess(this.base, this.usableBytes, [device], right)
  }

  /** bytes of memory that it has: mapped, or not taken back by the driver yet */
  get heldBytes(): number {
    return this.unmapped.reduce((sum, { bytes }) => sum + bytes, this.mappedBytes)
  }

  /** Maps memory behind the first `bytes`. Throws the driver's error, and leaves all as it was. */
  growTo(bytes: number): void {
    const target = Math.ceil(bytes / this.granuleBytes) * this.granuleBytes
    const before = this.usableBytes
    if (target <= before) return
    this.shrinkTo(before) // the rest of a failed growth
    try {
      while (this.mappedBytes < target) this.mapPiece(target)
      const driver = this.context.activate()
      driver.cuMemSetAccess(this.base + before, target - before, this.access.devices, this.right)
      this.usableBytes = target
      for (const { offset, bytes: length } of this.pieces) {
        if (offset >= before) this.watch.ready(this.base + offset, length)
      }
    } catch (error) {
      this.undoTo(before)
      throw error
    }
  }

  /** The pieces that devices may use. */
  segments(): PoolSegment[] {
    const usable = this.pieces.filter(({ offset }) => offset < this.usableBytes)
    return usable.map(({ offset, bytes }) => ({ ptr: this.base + offset, bytes }))
  }

  /** Whether `shrinkTo(bytes)` would give memory back. */
  hasBeyond(bytes: number): boolean {
    return this.unmapped.length > 0 || this.lastOffset >= bytes
  }

  /** Unmaps the pieces that lie entirely beyond `bytes`, and releases their memory; no work may use it. */
  shrinkTo(bytes: number): void {
    const driver = this.context.activate()
    this.releaseUnmapped()
    while (this.lastOffset >= bytes) {
      const { pieces, unmapped } = this
      const last = pieces[pieces.length - 1]
      this.watch.leaving(this.base + last.offset)
      driver.cuMemUnmap(this.base + last.offset, last.bytes)
      pieces.length--
      unmapped[unmapped.length] = last
      this.mappedBytes = last.offset
      if (this.usableBytes > last.offset) this.usableBytes = last.offset
      this.releaseUnmapped()
    }
  }

  /** Gives back memory and addresses; no work may use them. Can be repeated when the driver refuses. */
  close(): void {
    this.shrinkTo(0)
    this.context.activate().cuMemAddressFree(this.base, this.capacityBytes)
  }

  /** Asserts that the pieces lie side by side and add up. */
  check(): void {
    let end = 0
    for (const { offset, bytes } of this.pieces) {
      assert(offset === end, 'a piece begins where the one before it ends')
      assert(bytes > 0 && bytes % this.granuleBytes === 0, 'pieces are whole granules')
      end += bytes
    }
    assert(end === this.mappedBytes && end <= this.capacityBytes, 'the pieces are what is mapped')
    assert(this.usableBytes <= this.mappedBytes, 'what can be used is mapped')
  }

  /** Gives the devices with access another right, now and to memory that is mapped later. */
  protected allow(right: number): void {
    if (this.usableBytes > 0) {
      this.context.activate().cuMemSetAccess(this.base, this.usableBytes, this.access.devices, right)
    }
    this.right = right
  }

  /** The size of a piece that begins at `offset`, unless less is needed. */
  protected pieceBytes(offset: number): number {
    const granules = Math.floor(Math.min(offset * PIECE_SHARE, MOST_PIECE_BYTES) / this.granuleBytes)
    return Math.max(granules, 1) * this.granuleBytes
  }

  /** The driver's handle of `bytes` of memory. */
  protected obtain(bytes: number): number {
    return this.context.activate().cuMemCreate(bytes, this.context.device, CU_MEM_HANDLE_TYPE_NONE)
  }

  /** The offset of the last piece, -1 without pieces. */
  private get lastOffset(): number {
    return this.pieces.length === 0 ? -1 : this.pieces[this.pieces.length - 1].offset
  }

  /** Adds one piece that ends at `target` or before. */
  private mapPiece(target: number): void {
    const { mappedBytes: offset, pieces, unmapped } = this
    const bytes = Math.min(this.pieceBytes(offset), target - offset)
    const handle = this.obtain(bytes)
    const piece = { offset, bytes, handle }
    unmapped[unmapped.length] = piece
    this.context.activate().cuMemMap(this.base + offset, bytes, handle)
    unmapped.length--
    pieces[pieces.length] = piece
    this.mappedBytes = offset + bytes
  }

  /** Undoes a failed growth. Memory that the driver does not take back is given back by the next growth or shrink. */
  private undoTo(bytes: number): void {
    try {
      this.shrinkTo(bytes)
    } catch (error) {
      if (!isDriverError(error)) throw error
    }
  }

  private releaseUnmapped(): void {
    const { unmapped } = this
    while (unmapped.length > 0) {
      this.context.activate().cuMemRelease(unmapped[unmapped.length - 1].handle)
      unmapped.length--
    }
  }
}
