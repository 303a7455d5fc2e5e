// The contents of memory that sleeps, in pinned host memory. Each extent of device memory has a copy of its own, so
// that the copy of a freed buffer can go at once. A copy has parts of at most 64 MiB, which any host pool can serve.

import { setImmediate } from 'node:timers/promises'
import { formatBytes, formatBytesUp, MiB } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { ownNode } from '../../driver/host-node.js'
import type { Stream } from '../../order/stream.js'
import { PAGE_BYTES, type PinnedMemory, PinnedSegments, prepareFor } from '../backing/pinned-segments.js'
import { figuresOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'

const MOST_PART_BYTES = 64 * MiB

/** Device memory with contents to keep. */
export interface Extent {
  readonly ptr: number
  readonly bytes: number
  /**
   * names the buffer that has the memory, until its free; -1 for memory whose contents may change without a write to a
   * buffer
   */
  readonly version: number
}

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

/** Host memory of one part. It stays readable if its pool is closed first. */
interface Part {
  readonly offset: number
  readonly bytes: Uint8Array
  /** null for memory that was pinned for this copy alone */
  readonly buffer: HostMemoryBuffer | null
  readonly from: HostMemory | undefined
}

/** What a copy to the device reads, and its target. */
export interface Source {
  readonly ptr: number
  readonly host: Uint8Array
}

interface Copy extends Extent {
  readonly parts: readonly Part[]
}

export class HostCopies {
  /** bytes of host memory */
  bytes = 0
  /** by device address */
  private readonly copies = new Map<number, Copy>()
  private readonly pinned: PinnedSegments

  constructor(private readonly context: Context) {
    const numaNode = ownNode(context)
    this.pinned = new PinnedSegments(context, false, {
      firstBytes: PAGE_BYTES,
      segmentBytes: PAGE_BYTES,
      mapped: false,
      numaNode,
    })
  }

  /** The parts of the copy of an extent; undefined if it has none. */
  partsOf({ ptr }: Extent): readonly Part[] | undefined {
    return this.copies.get(ptr)?.parts
  }

  /** The parts of the copies of extents, each with the address of its contents. */
  sourcesOf(extents: readonly Extent[]): Source[] {
    return extents.flatMap(extent =>
      this.partsOf(extent)!.map(({ offset, bytes }) => ({ ptr: extent.ptr + offset, host: bytes })),
    )
  }

  /** Whether the contents of an extent were copied, and only a program can have changed them since. */
  holds({ ptr, bytes, version }: Extent): boolean {
    const copy = this.copies.get(ptr)
    return copy !== undefined && copy.bytes === bytes && copy.version === version && version !== -1
  }

  /**
   * Has host memory for exactly these extents. Node goes on between the parts; `checkOpen` throws if the copies are of
   * no use any more. Throws OutOfMemoryError if there is not enough; the caller then drops all copies.
   */
  async fit(extents: readonly Extent[], into: HostMemory | undefined, checkOpen: () => void): Promise<void> {
    const wanted = new Map(extents.map(extent => [extent.ptr, extent]))
    for (const [ptr, { bytes }] of this.copies) if (wanted.get(ptr)?.bytes !== bytes) this.drop(ptr)
    const missing = extents.filter(({ ptr }) => !this.copies.has(ptr))
    if (into !== undefined) checkRoom(missing, into)
    for (const extent of extents) {
      const known = this.copies.get(extent.ptr)
      const parts: Part[] = []
      this.copies.set(extent.ptr, { ...extent, parts: known?.parts ?? parts })
      if (known !== undefined) continue
      for (let offset = 0; offset < extent.bytes; offset += MOST_PART_BYTES) {
        const bytes = Math.min(MOST_PART_BYTES, extent.bytes - offset)
        const prepared = await this.prepare(bytes, into)
        parts.push(
          (into?.memory ?? this.pinned).growWith(prepared, () => {
            checkOpen()
            return this.takePart(offset, bytes, into)
          }),
        )
        await setImmediate()
        checkOpen()
      }
    }
  }

  /** Tells host pools that copies on `stream` use their memory until it is freed. */
  noteUse(parts: readonly Part[], stream: Stream): void {
    for (const { buffer } of parts) if (buffer !== null && !buffer.freed) buffer.recordUse(stream)
  }

  /** Gives the host memory of one copy back. Copies that still run are waited for by its pool, or by the driver. */
  drop(ptr: number): void {
    const copy = this.copies.get(ptr)
    if (copy === undefined) return
    this.copies.delete(ptr)
    for (const part of copy.parts) this.giveBack(part)
  }

  /** Gives back the copies of all extents but these. */
  retain(extents: readonly Extent[]): void {
    const kept = new Set(extents.map(({ ptr }) => ptr))
    for (const ptr of [...this.copies.keys()]) if (!kept.has(ptr)) this.drop(ptr)
  }

  /** Memory of a part, to which another thread gives its pages; null if the host pool has it already. */
  private async prepare(length: number, into: HostMemory | undefined): Promise<Uint8Array | null> {
    if (into === undefined) return await this.pinned.prepare(roundUp(length))
    return into.closed || into.stats().largestFreeBytes >= length ? null : await prepareFor(into, length)
  }

  private takePart(offset: number, length: number, into: HostMemory | undefined): Part {
    if (into !== undefined) {
      const buffer = into.allocate(length)
      into.sleepCopies.add(buffer)
      this.bytes += length
      return { offset, bytes: buffer.bytes, buffer, from: into }
    }
    const address = this.pinned.obtain(roundUp(length))
    if (address === 0) throw noHostMemory(length)
    this.bytes += length
    return { offset, bytes: this.pinned.bytesAt(address, length), buffer: null, from: into }
  }

  private giveBack({ bytes, buffer, from }: Part): void {
    this.bytes -= bytes.length
    if (buffer !== null) from?.sleepCopies.delete(buffer)
    if (this.context.released) return // with all its registrations
    if (buffer === null) this.context.discard(driver => this.pinned.giveBack(driver.hostAddress(bytes)))
    else if (!buffer.freed) buffer.free()
  }
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES
}

function checkRoom(missing: readonly Extent[], into: HostMemory): void {
  const bytes = missing.reduce((sum, extent) => sum + extent.bytes, 0)
  const { liveBytes, reservedBytes, maxPoolBytes } = into.stats()
  const room = maxPoolBytes - liveBytes
  if (bytes <= room) return
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
