// The home range: the addresses where each piece of a pool is mapped first, and stays. They are reserved once, several
// times the device's memory.

import { MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import { CU_MEM_HANDLE_TYPE_NONE } from '../../../driver/constants.js'
import type { Context } from '../../../driver/context.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { relaxed } from '../../../order/relaxed.js'
import { MOST_ALIGNMENT_BYTES } from '../backing.js'
import type { MappedAccess } from '../mapped-access.js'
import type { SegmentWatch } from '../segment-watch.js'
import { cut, Piece } from './piece.js'
import type { SpareHandles } from './spare-handles.js'
import { unmapOnce } from './unmap-once.js'

/** Memory that is mapped again in one step, so that its contents can follow while the next step is mapped. */
const STEP_BYTES = 64 * MiB

export class HomeRange {
  readonly base: number
  /** in the order of their addresses */
  readonly pieces: Piece[] = []
  /** the bytes of all handles */
  reservedBytes = 0
  /** the pool's bytes elsewhere */
  besideBytes = 0
  /** the highest sum of `reservedBytes` and `besideBytes` */
  peakReservedBytes = 0
  /** pieces that are being created, or that the driver has refused to take back so far */
  private readonly unused: Piece[] = []
  private bytes: number
  private readonly granuleUnits: number

  /** Throws the driver's error if it does not reserve the addresses. */
  constructor(
    private readonly context: Context,
    private readonly access: MappedAccess,
    bytes: number,
    granuleBytes: number,
    private readonly watch: SegmentWatch,
  ) {
    this.base = context.activate().cuMemAddressReserve(bytes, Math.max(granuleBytes, MOST_ALIGNMENT_BYTES))
    this.bytes = bytes
    this.granuleUnits = granuleBytes / UNIT_BYTES
  }

  /** Whether an address lies in the range. */
  contains(ptr: number): boolean {
    return ptr >= this.base && ptr < this.base + this.bytes
  }

  /**
   * Creates pieces of at least `leastUnits` behind runs of units that have no memory; see `cut`. Throws the driver's
   * error; all is as before then.
   */
  create(runs: readonly { readonly start: number; readonly units: number }[], leastUnits: number): Piece[] {
    // some stream may be captured
    return relaxed(this.context.activate(), () => this.createRelaxed(runs, leastUnits))
  }

  private createRelaxed(
    runs: readonly { readonly start: number; readonly units: number }[],
    leastUnits: number,
  ): Piece[] {
    this.releaseUnused()
    const driver = this.context.activate()
    try {
      for (const { start, units } of runs) {
        const pieceUnits = cut(units, leastUnits, this.granuleUnits)
        for (let from = start; from < start + units; from += pieceUnits) {
          const piece = new Piece(from, Math.min(pieceUnits, start + units - from))
          const { bytes } = piece
          this.unused.push(piece)
          piece.handle = driver.cuMemCreate(bytes, this.context.device, CU_MEM_HANDLE_TYPE_NONE)
          this.noteCreated(piece)
          driver.cuMemMap(this.base + from * UNIT_BYTES, bytes, piece.handle)
          piece.isMapped = true
        }
        driver.cuMemSetAccess(this.base + start * UNIT_BYTES, units * UNIT_BYTES, this.access.devices)
      }
      for (const piece of this.unused) this.watch.ready(this.addressOf(piece), piece.bytes)
    } catch (error) {
      this.context.discard(() => this.releaseUnused())
      throw error
    }
    const created = [...this.unused]
    for (const piece of created) this.pieces.splice(this.indexAt(piece.start), 0, piece)
    this.unused.length = 0 // last, since a call may be cut short between any two: `close` finds a piece in one list or both
    return created
  }

  /** Releases a piece that is in no view. If the driver refuses, a later call tries again. */
  release(piece: Piece): void {
    this.unused.push(piece) // before it leaves the other list, as in `create`
    this.pieces.splice(this.indexAt(piece.start), 1)
    this.releaseUnused()
  }

  /** Releases the pieces that no block lies on. */
  releaseUnused(): void {
    if (this.unused.length > 0) relaxed(this.context.activate(), () => this.releaseEach())
  }

  private releaseEach(): void {
    while (this.unused.length > 0) {
      this.releaseMemory(this.unused[this.unused.length - 1])
      this.unused.pop()
    }
  }

  private noteCreated({ bytes }: Piece): void {
    this.reservedBytes += bytes
    this.notePeak()
  }

  /** Notes that the pool may have more memory than ever. */
  notePeak(): void {
    this.peakReservedBytes = Math.max(this.peakReservedBytes, this.reservedBytes + this.besideBytes)
  }

  private releaseMemory(piece: Piece, spares: SpareHandles | null = null): void {
    const driver = this.context.activate()
    const { bytes } = piece
    if (piece.isMapped) {
      const address = this.addressOf(piece)
      this.watch.leaving(address)
      unmapOnce(piece, () => driver.cuMemUnmap(address, bytes))
      piece.isMapped = false
    }
    if (piece.handle === 0) return
    if (spares !== null) spares.put(piece)
    else driver.cuMemRelease(piece.handle)
    piece.handle = 0
    this.reservedBytes -= bytes
  }

  /** The same without an error: if the driver refuses, a later call tries again. */
  tryReleaseUnused(): void {
    try {
      this.releaseUnused()
    } catch (error) {
      if (!(error instanceof CudaError)) throw error
    }
  }

  /** bytes of the pieces without memory */
  get suspendedBytes(): number {
    return this.pieces.reduce((sum, piece) => sum + (piece.handle === 0 ? piece.bytes : 0), 0)
  }

  /** Gives the memory of all pieces back, or to `spares`, and keeps their places. Can be repeated after a refusal. */
  suspend(spares: SpareHandles | null): void {
    this.releaseUnused()
    relaxed(this.context.activate(), () => {
      for (const piece of this.pieces) this.releaseMemory(piece, spares)
    })
  }

  /**
   * Takes memory of `spares`, or creates it, for the pieces without; it is mapped nowhere yet. After the driver's error
   * no piece has new memory.
   */
  createAgain(spares: SpareHandles | null): void {
    const driver = this.context.activate()
    const created: Piece[] = []
    try {
      relaxed(driver, () => {
        for (const piece of this.pieces) {
          if (piece.handle !== 0) continue
          piece.handle =
            spares?.take(piece.bytes) || driver.cuMemCreate(piece.bytes, this.context.device, CU_MEM_HANDLE_TYPE_NONE)
          this.noteCreated(piece)
          created.push(piece)
        }
      })
    } catch (error) {
      for (const piece of created) this.context.discard(() => this.releaseMemory(piece))
      throw error
    }
  }

  /** Maps all pieces at their places, step by step, and gives the devices access. */
  *mapAgain(): Generator<{ readonly ptr: number; readonly bytes: number }> {
    const { pieces } = this
    for (let first = 0, end = 0; first < pieces.length; first = end) {
      let { bytes } = pieces[first]
      for (end = first + 1; end < pieces.length && bytes < STEP_BYTES; end++) {
        if (pieces[end].start !== pieces[end - 1].start + pieces[end - 1].units) break
        bytes += pieces[end].bytes
      }
      const ptr = this.addressOf(pieces[first])
      relaxed(this.context.activate(), () => this.mapStep(pieces.slice(first, end), ptr, bytes))
      yield { ptr, bytes }
    }
  }

  private mapStep(pieces: readonly Piece[], ptr: number, bytes: number): void {
    const driver = this.context.activate()
    for (const piece of pieces) {
      if (!piece.isMapped) driver.cuMemMap(this.addressOf(piece), piece.bytes, piece.handle)
      piece.isMapped = true
    }
    driver.cuMemSetAccess(ptr, bytes, this.access.devices)
  }

  /** Sets one device's access to all pieces. */
  applyAccess(device: number, flags: number): void {
    const driver = this.context.activate()
    for (const { start, bytes } of this.pieces)
      driver.cuMemSetAccess(this.base + start * UNIT_BYTES, bytes, [device], flags)
  }

  /** Gives all memory and the addresses back; no work may be pending, and no piece in a view. */
  close(): void {
    this.unused.push(...this.pieces.splice(0))
    this.releaseUnused()
    if (this.bytes > 0) this.context.activate().cuMemAddressFree(this.base, this.bytes)
    this.bytes = 0
  }

  addressOf({ start }: Piece): number {
    return this.base + start * UNIT_BYTES
  }

  /** The index of the first piece at or after a unit. */
  private indexAt(unit: number): number {
    let low = 0
    let high = this.pieces.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.pieces[middle].start < unit) low = middle + 1
      else high = middle
    }
    return low
  }
}
