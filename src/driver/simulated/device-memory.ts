// Reading and writing device memory by address, as work that runs on one device does: a range may go on over several
// mappings, and whatever the device must not touch stops the work with an IllegalAddress.

import type { AddressSpace } from './address-space.js'
import type { Contents } from './contents.js'
import { IllegalAddress } from './scheduler.js'

/** A typed array of numbers, by its constructor. */
export interface NumberArrayConstructor<T extends NumberArray> {
  new (count: number): T
  readonly BYTES_PER_ELEMENT: number
}

export type NumberArray =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array

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

  read(address: number, target: Uint8Array): void {
    this.eachPiece(address, target.length, (contents, offset, bytes, done) =>
      contents.read(offset, target.subarray(done, done + bytes)),
    )
  }

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

  copy(target: number, source: number, bytes: number): void {
    this.eachPiece(source, bytes, (from, fromOffset, fromBytes, fromDone) =>
      this.eachPiece(target + fromDone, fromBytes, (to, toOffset, count, done) =>
        to.copyFrom(toOffset, from, fromOffset + done, count),
      ),
    )
  }

  // Everything is checked before anything is touched, so that a fault leaves no half of an operation behind.
  private eachPiece(
    address: number,
    bytes: number,
    visit: (contents: Contents, offset: number, bytes: number, done: number) => void,
  ): void {
    const pieces: [Contents, number, number, number][] = []
    for (let done = 0; done < bytes; ) {
      const at = address + done
      const region = this.space.find(at)
      let contents = region?.contents ?? null
      let base = region?.base ?? 0
      let end = base + (region?.bytes ?? 0)
      if (region === undefined) throw this.illegal(at, 'nothing is allocated there')
      if (region.reservation !== null) {
        const mapping = region.reservation.at(at)
        if (mapping === undefined) throw this.illegal(at, 'nothing is mapped there')
        if ((mapping.access & (1 << this.device)) === 0) throw this.illegal(at, 'mapped without access for this device')
        contents = mapping.physical.contents
        base = mapping.base
        end = base + mapping.bytes
      } else if (region.device?.ordinal !== this.device) {
        throw this.illegal(at, `the memory belongs to device ${region.device?.ordinal}`)
      }
      const count = Math.min(bytes - done, end - at)
      pieces.push([contents!, at - base, count, done])
      done += count
    }
    for (const piece of pieces) visit(...piece)
  }

  private illegal(address: number, reason: string): IllegalAddress {
    return new IllegalAddress(`device ${this.device} touches 0x${address.toString(16)}: ${reason}`)
  }
}

/** The bytes of a view, shared with it. */
export function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
}
