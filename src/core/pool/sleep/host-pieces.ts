// Pinned memory for copies of sleeping memory: of a host pool, or pinned for this alone.

import { formatBytes, formatBytesUp } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { ownNode } from '../../driver/host-node.js'
import type { Stream } from '../../order/stream.js'
import { PAGE_BYTES, type PinnedMemory, PinnedSegments, prepareFor } from '../backing/pinned-segments.js'
import { figuresOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'

/** Pinned memory that a `HostMemory` hands out. */
export interface HostMemoryBuffer {
  readonly bytes: Uint8Array
  readonly freed: boolean
  recordUse(stream: Stream): void
  free(): void
}

/** The part of a host pool that copies need. */
export interface HostMemory {
  /** @internal */
  readonly context: Context
  readonly closed: boolean
  /**
   * those of its buffers that are copies of sleeping memory, and not the program's
   * @internal
   */
  readonly sleepCopies: Set<HostMemoryBuffer>
  /** @internal */
  readonly memory: PinnedMemory
  allocate(bytes: number): HostMemoryBuffer
  stats(): Pick<PoolStats, 'liveBytes' | 'reservedBytes' | 'largestFreeBytes' | 'maxPoolBytes'>
}

/** Host memory that lies in one piece. It stays readable if its pool is closed first. */
export interface Piece {
  readonly bytes: Uint8Array
  /** null for memory that was pinned for this piece alone */
  readonly buffer: HostMemoryBuffer | null
  readonly from: HostMemory | undefined
  /** bytes in use by copies; without any, the piece goes back */
  usedBytes: number
}

export class HostPieces {
  /** bytes of all pieces */
  bytes = 0
  private readonly pieces = new Set<Piece>()
  private readonly pinned: PinnedSegments

  constructor(private readonly context: Context) {
    this.pinned = new PinnedSegments(context, false, {
      firstBytes: PAGE_BYTES,
      segmentBytes: PAGE_BYTES,
      mapped: false,
      numaNode: ownNode(context),
    })
  }

  /**
   * The result of `take`, which takes a piece of `length` bytes. If that needs memory that is not pinned yet, another
   * thread gives it its pages first, and Node goes on meanwhile. `checkOpen` may throw then.
   */
  async withPages<R>(length: number, into: HostMemory | undefined, checkOpen: () => void, take: () => R): Promise<R> {
    const prepared = await this.prepare(length, into)
    return (into?.memory ?? this.pinned).growWith(prepared, () => {
      checkOpen()
      return take()
    })
  }

  /** A piece of `length` bytes, all of them in use. Throws OutOfMemoryError if there is no such piece. */
  take(length: number, into: HostMemory | undefined): Piece {
    const piece = into === undefined ? this.pin(length) : takeFrom(into, length)
    this.pieces.add(piece)
    this.bytes += length
    return piece
  }

  /** Tells host pools that work on `stream` uses their memory until it is freed. */
  noteUse(stream: Stream): void {
    for (const { buffer } of this.pieces) if (buffer !== null && !buffer.freed) buffer.recordUse(stream)
  }

  /** Ends the use of some bytes. Copies that still run are waited for by the piece's pool, or by the driver. */
  release(piece: Piece, length: number): void {
    piece.usedBytes -= length
    if (piece.usedBytes > 0) return
    const { bytes, buffer, from } = piece
    this.pieces.delete(piece)
    this.bytes -= bytes.length
    if (buffer !== null) from?.sleepCopies.delete(buffer)
    if (this.context.released) return // with all its registrations
    if (buffer === null) this.context.discard(driver => this.pinned.giveBack(driver.hostAddress(bytes)))
    else if (!buffer.freed) buffer.free()
  }

  private async prepare(length: number, into: HostMemory | undefined): Promise<Uint8Array | null> {
    if (into === undefined) return await this.pinned.prepare(roundUp(length))
    return into.closed || into.stats().largestFreeBytes >= length ? null : await prepareFor(into, length)
  }

  private pin(length: number): Piece {
    const address = this.pinned.obtain(roundUp(length))
    if (address === 0) throw noHostMemory(length)
    return { bytes: this.pinned.bytesAt(address, length), buffer: null, from: undefined, usedBytes: length }
  }
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES
}

function takeFrom(from: HostMemory, length: number): Piece {
  const buffer = from.allocate(length)
  from.sleepCopies.add(buffer)
  return { bytes: buffer.bytes, buffer, from, usedBytes: length }
}

/** Whether a host pool has pinned enough for `bytes` of copies. Throws OutOfMemoryError if it has no room for them. */
export function hasPinned(bytes: number, into: HostMemory): boolean {
  const { liveBytes, reservedBytes, maxPoolBytes } = into.stats()
  const room = maxPoolBytes - liveBytes
  if (bytes <= room) return bytes <= reservedBytes - liveBytes
  throw new OutOfMemoryError(
    `sleep: ${formatBytes(bytes)} of contents do not fit into the host pool, which has room for ${formatBytes(room)}; ` +
      `raise its maxPoolBytes by ${formatBytesUp(bytes - room)}, or leave out into`,
    figuresOf(bytes, { liveBytes, reservedBytes, largestFreeBytes: room, maxPoolBytes }, room),
  )
}

function noHostMemory(bytes: number): OutOfMemoryError {
  return new OutOfMemoryError(
    `sleep: the host has no ${formatBytes(bytes)} more to pin; free host memory, or sleep with keep 'nothing'`,
    figuresOf(bytes, {}, 0),
  )
}
