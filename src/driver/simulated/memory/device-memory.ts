// Reading and writing device memory by address, as work that runs on one device does: a range may go on over several
// mappings, and whatever the device must not touch stops the work with an IllegalAddress.

import { IllegalAddress } from '../streams/scheduler.js'
import type { AddressSpace, Extent } from './address-space.js'
import type { DeviceContents } from './contents.js'

/** A typed array of numbers, by its constructor. */
export interface NumberArrayConstructor<T extends NumberArray> {
  new (count: number): T
  /** bytes of an element */
  readonly BYTES_PER_ELEMENT: number
}

/** A typed array of numbers. */
export type NumberArray =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array

/** A part of a range: where its bytes are, and how many bytes of the range lie before it. */
interface Piece {
  readonly contents: DeviceContents
  readonly offset: number
  readonly bytes: number
  readonly done: number
}

/** Device memory as a kernel sees it. An access outside of what the device may touch ends the kernel and the context. */
export class DeviceMemory {
  constructor(
    private readonly space: AddressSpace,
    private readonly device: number,
  ) {}

  /** A copy of `count` elements from `address` on. */
  load<T extends NumberArray>(kind: NumberArrayConstructor<T>, address: number, count: number): T {
    const values = new kind(count)
    this.read(address, bytesOf(values))
    return values
  }

  /** Writes all of `values` from `address` on. */
  store(address: number, values: ArrayBufferView): void {
    this.write(address, bytesOf(values))
  }

  /** Copies bytes from the device. Throws CudaError for an address without memory. */
  read(address: number, target: Uint8Array): void {
    this.eachPiece(address, target.length, (contents, offset, bytes, done) =>
      contents.read(offset, target.subarray(done, done + bytes)),
    )
  }

  /** Copies bytes to the device. Throws CudaError for an address without memory. */
  write(address: number, source: Uint8Array): void {
    this.eachPiece(address, source.length, (contents, offset, bytes, done) =>
      contents.write(offset, source.subarray(done, done + bytes)),
    )
  }

  /** Repeats the 32-bit `word` from `address`, a multiple of 4, over `bytes`; a byte fill passes the byte four times. */
  fill(address: number, bytes: number, word: number): void {
    this.eachPiece(address, bytes, (contents, offset, count) => contents.fill(offset, count, word))
  }

  /** How many of the 32-bit words in a range are not `word`; `address` and `bytes` are multiples of 4. */
  countDifferent(address: number, bytes: number, word: number): number {
    let different = 0
    this.eachPiece(address, bytes, (contents, offset, count) => {
      different += contents.countDifferent(offset, count, word)
    })
    return different
  }

  /** Copies from `source`, an address that `from` may read: this device's, or another one's whose copy it is too. */
  copy(target: number, source: number, bytes: number, from: DeviceMemory = this): void {
    const pieces = from.pieces(source, bytes)
    this.pieces(target, bytes)
    for (const piece of pieces) {
      this.eachPiece(target + piece.done, piece.bytes, (contents, offset, count, done) =>
        contents.copyFrom(offset, piece.contents, piece.offset + done, count),
      )
    }
  }

  private eachPiece(
    address: number,
    bytes: number,
    visit: (contents: DeviceContents, offset: number, bytes: number, done: number) => void,
  ): void {
    for (const piece of this.pieces(address, bytes)) visit(piece.contents, piece.offset, piece.bytes, piece.done)
  }

  // Everything is checked before anything is touched, so that a fault leaves no half of an operation behind.
  private pieces(address: number, bytes: number): Piece[] {
    const pieces: Piece[] = []
    for (let done = 0; done < bytes; ) {
      const at = address + done
      const extent = this.extentAt(at)
      if (extent.contents === null) throw this.illegal(at, 'the memory was freed by the process that shared it')
      if ((extent.access.devices & (1 << this.device)) === 0) {
        throw this.illegal(at, `memory of ${extent.memory?.name}, without access for this device`)
      }
      const count = Math.min(bytes - done, extent.base + extent.bytes - at)
      pieces.push({ contents: extent.contents, offset: at - extent.base + extent.contentsOffset, bytes: count, done })
      done += count
    }
    return pieces
  }

  private extentAt(address: number): Extent {
    const region = this.space.find(address)
    if (region === undefined) throw this.illegal(address, 'nothing is allocated there')
    if (region.reservation === null) return region
    const mapping = region.reservation.at(address)
    if (mapping === undefined) throw this.illegal(address, 'nothing is mapped there')
    return mapping
  }

  private illegal(address: number, reason: string): IllegalAddress {
    return new IllegalAddress(`device ${this.device} touches 0x${address.toString(16)}: ${reason}`)
  }
}

/** The bytes of a view, shared with it. */
export function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
}
