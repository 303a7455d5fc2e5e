// The contents of memory that sleeps, in pinned host memory. A large extent of device memory has host memory of its
// own, so that the copy of a freed buffer can go at once. Small ones share a piece of host memory, in their order:
// that takes fewer pieces, and neighbours are copied by one copy. A piece goes when all extents in it have gone. Pieces
// have at most 64 MiB, which any host pool can serve.

import { setImmediate } from 'node:timers/promises'
import { MiB } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import type { BatchedCopy } from '../../driver/driver.js'
import type { Stream } from '../../order/stream.js'
import { policy } from '../policy.js'
import { type HostMemory, HostPieces, hasPinned, type Piece } from './host-pieces.js'

const MOST_PIECE_BYTES = 64 * MiB
/** Of a shared piece: it fits into a segment of a host pool, and takes far longer to copy than a call of the driver. */
const MOST_SHARED_BYTES = MOST_PIECE_BYTES / 8

/** Device memory with contents to keep. */
export interface Extent {
  readonly ptr: number
  readonly bytes: number
  /** a number for the range of addresses that it lies in; one copy cannot reach from one range to the next */
  readonly range: number
  /**
   * names the buffer that has the memory, until its free; -1 for memory whose contents may change without a write to a
   * buffer
   */
  readonly version: number
}

/** A part of a copy, in one piece of host memory. */
interface Part {
  readonly piece: Piece
  /** in the piece */
  readonly start: number
  readonly bytes: number
}

interface Copy {
  readonly bytes: number
  version: number
  /** in the order of their contents */
  readonly parts: Part[]
}

/** Parts that are neighbours on both sides. */
interface Run {
  readonly piece: Piece
  /** in the piece */
  readonly start: number
  readonly range: number
  readonly ptr: number
  bytes: number
}

export class HostCopies {
  /** by device address */
  private readonly copies = new Map<number, Copy>()
  private readonly pieces: HostPieces
  /** bytes of a shared piece; less after the host had none so large */
  private mostSharedBytes = MOST_SHARED_BYTES

  constructor(context: Context) {
    this.pieces = new HostPieces(context)
  }

  /** bytes of host memory */
  get bytes(): number {
    return this.pieces.bytes
  }

  /** Whether an extent has a copy. */
  has({ ptr }: Extent): boolean {
    return this.copies.has(ptr)
  }

  /** Whether the contents of an extent were copied, and only a program can have changed them since. */
  holds({ ptr, bytes, version }: Extent): boolean {
    const copy = this.copies.get(ptr)
    return copy !== undefined && copy.bytes === bytes && copy.version === version && version !== -1
  }

  /**
   * Host memory and device addresses of extents that have copies. Neighbours on the device that are neighbours in a
   * piece, too, are one copy.
   */
  placesOf(extents: readonly Extent[]): BatchedCopy[] {
    const runs: Run[] = []
    for (const { ptr, range } of extents) {
      let at = ptr
      for (const { piece, start, bytes } of this.copies.get(ptr)!.parts) {
        const last = runs.at(-1)
        if (last !== undefined && continues(last, piece, start, range, at)) last.bytes += bytes
        else runs.push({ piece, start, range, ptr: at, bytes })
        at += bytes
      }
    }
    return runs.map(({ piece, start, ptr, bytes }) => ({ host: piece.bytes.subarray(start, start + bytes), ptr }))
  }

  /**
   * Gives up the copies that these extents cannot use, and those that share a piece with copies given up before: it
   * would be kept for less than it has. Such extents are copied again.
   */
  keepFor(extents: readonly Extent[]): void {
    if (this.copies.size === 0) return
    const wanted = new Map(extents.map(({ ptr, bytes }) => [ptr, bytes]))
    for (const [ptr, { bytes }] of this.copies) if (wanted.get(ptr) !== bytes) this.drop(ptr)
    for (const [ptr, { parts }] of this.copies) {
      if (parts.some(({ piece }) => piece.usedBytes < piece.bytes.length)) this.drop(ptr)
    }
  }

  /**
   * After `keepFor`: has host memory for all of these extents. Node goes on between the pieces; `checkOpen` throws if
   * the copies are of no use any more. Throws OutOfMemoryError if there is not enough; the caller then drops all.
   */
  async fit(extents: readonly Extent[], into: HostMemory | undefined, checkOpen: () => void): Promise<void> {
    const missing = extents.filter(extent => !this.has(extent))
    const isPinned = into !== undefined && hasPinned(bytesOfAll(missing), into)
    for (const { ptr, version } of extents) if (this.copies.has(ptr)) this.copies.get(ptr)!.version = version
    this.mostSharedBytes = MOST_SHARED_BYTES
    for (let next = 0; next < missing.length; ) {
      const take = () => this.takeNext(missing, next, into)
      next += isPinned ? take() : await this.pieces.withPages(this.nextBytes(missing, next), into, checkOpen, take)
      await setImmediate()
      checkOpen()
    }
  }

  /** Tells host pools that copies on `stream` use their memory until it is freed. */
  noteUse(stream: Stream): void {
    this.pieces.noteUse(stream)
  }

  /** Gives up one copy. Its host memory goes back, once no other extent has a copy in the same piece. */
  drop(ptr: number): void {
    const copy = this.copies.get(ptr)
    if (copy === undefined) return
    this.copies.delete(ptr)
    for (const { piece, bytes } of copy.parts) this.pieces.release(piece, bytes)
  }

  /** Gives up the copies of all extents but these. */
  retain(extents: readonly Extent[]): void {
    const kept = new Set(extents.map(({ ptr }) => ptr))
    for (const ptr of [...this.copies.keys()]) if (!kept.has(ptr)) this.drop(ptr)
  }

  /** The bytes of the next piece, for extents from `next` on. */
  private nextBytes(extents: readonly Extent[], next: number): number {
    const extent = extents[next]
    if (isSmall(extent)) return bytesOfAll(sharingFrom(extents, next, this.mostSharedBytes))
    return Math.min(MOST_PIECE_BYTES, this.restOf(extent))
  }

  /** The bytes of a large extent that have no piece yet. */
  private restOf({ ptr, bytes }: Extent): number {
    return bytes - bytesOfAll(this.copies.get(ptr)?.parts ?? [])
  }

  /** Takes that piece; returns how many extents have all of theirs now. */
  private takeNext(extents: readonly Extent[], next: number, into: HostMemory | undefined): number {
    const extent = extents[next]
    if (isSmall(extent)) return this.takeShared(extents, next, into)
    const { ptr, bytes, version } = extent
    const piece = this.pieces.take(this.nextBytes(extents, next), into)
    const copy = this.copies.get(ptr) ?? { bytes, version, parts: [] }
    this.copies.set(ptr, copy)
    copy.parts.push({ piece, start: 0, bytes: piece.bytes.length })
    return this.restOf(extent) === 0 ? 1 : 0
  }

  /** A piece for small extents from `first` on; returns for how many. */
  private takeShared(extents: readonly Extent[], first: number, into: HostMemory | undefined): number {
    let sharing = sharingFrom(extents, first, this.mostSharedBytes)
    let piece = this.tryTake(sharing, into)
    while (piece === null) {
      this.mostSharedBytes = bytesOfAll(sharing) / 2
      sharing = sharingFrom(extents, first, this.mostSharedBytes)
      piece = this.tryTake(sharing, into)
    }
    let start = 0
    for (const { ptr, bytes, version } of sharing) {
      this.copies.set(ptr, { bytes, version, parts: [{ piece, start, bytes }] })
      start += bytes
    }
    return sharing.length
  }

  /** A piece for all of these extents; null if a smaller one may be found. */
  private tryTake(extents: readonly Extent[], into: HostMemory | undefined): Piece | null {
    try {
      return this.pieces.take(bytesOfAll(extents), into)
    } catch (error) {
      if (!(error instanceof OutOfMemoryError) || extents.length === 1) throw error
      return null
    }
  }
}

/** Whether a part begins where a run ends, on both sides. */
function continues(run: Run, piece: Piece, start: number, range: number, ptr: number): boolean {
  return run.piece === piece && run.start + run.bytes === start && run.range === range && run.ptr + run.bytes === ptr
}

/** Whether an extent shares its piece: as large as a slab at most, since the copies of slabs wait for a wake, too. */
function isSmall({ bytes }: Extent): boolean {
  return bytes <= policy.slabBytes
}

/** The small extents from `first` on that have at most `mostBytes` together; one at least. */
function sharingFrom(extents: readonly Extent[], first: number, mostBytes: number): readonly Extent[] {
  let end = first + 1
  for (let bytes = extents[first].bytes; end < extents.length && isSmall(extents[end]); end++) {
    bytes += extents[end].bytes
    if (bytes > mostBytes) break
  }
  return extents.slice(first, end)
}

function bytesOfAll(parts: readonly { readonly bytes: number }[]): number {
  let sum = 0
  for (const { bytes } of parts) sum += bytes
  return sum
}
