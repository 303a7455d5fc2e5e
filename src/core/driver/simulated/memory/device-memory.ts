// Device memory by address, for kernels and copies that run on one device. A range may cover several mappings. An
// access without permission throws IllegalAddress, which ends the work and its context.

import { showAsText } from '../../../base/readable.js'
import { IllegalAddress } from '../streams/scheduler.js'
import type { AddressSpace } from './address-space.js'
import type { DeviceContents } from './contents.js'
import type { Extent } from './extent.js'

/** The constructor of a typed array of numbers. */
export interface NumberArrayConstructor<T extends NumberArray> {
  new (count: number): T
  /** bytes of an element */
  readonly BYTES_PER_ELEMENT: number
}

/** Typed arrays that kernels load from and store to device memory. */
export type NumberArray =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array

/** A part of a range with one piece of contents; `done` bytes of the range lie before it. */
interface Piece {
  readonly contents: DeviceContents
  readonly offset: number
  readonly bytes: number
  readonly done: number
}

/**
 * Device memory as kernels of one device see it. Addresses and sizes are in bytes. An access to memory that is not
 * allocated, or without access for the device, throws and so ends the kernel and its context.
 */
export class DeviceMemory {
  constructor(
    private readonly space: AddressSpace,
    private readonly device: number,
  ) {}

  /** A copy of `count` elements from `address` on, as a typed array of `kind`. */
  load<T extends NumberArray>(kind: NumberArrayConstructor<T>, address: number, count: number): T {
    const values = new kind(count)
    this.read(address, bytesOf(values))
    return values
  }

  /** Writes all of `values` from `address` on. */
  store(address: number, values: ArrayBufferView): void {
    this.write(address, bytesOf(values))
  }

  /** Copies bytes from `address` on into `target`. */
  read(address: number, target: Uint8Array): void {
    for (const { contents, offset, bytes, done } of this.pieces(address, target.length, 'read')) {
      contents.read(offset, target.subarray(done, done + bytes))
    }
  }

  /** Writes the bytes of `source` from `address` on. */
  write(address: number, source: Uint8Array): void {
    for (const { contents, offset, bytes, done } of this.pieces(address, source.length, 'write')) {
      contents.write(offset, source.subarray(done, done + bytes))
    }
  }

  /** Repeats the 32-bit `word` over `bytes` from `address` on, a multiple of 4. */
  fill(address: number, bytes: number, word: number): void {
    for (const { contents, offset, bytes: count } of this.pieces(address, bytes, 'write')) {
      contents.fill(offset, count, word)
    }
  }

  /** The number of 32-bit words in a range that are not `word`; `address` and `bytes` are multiples of 4. */
  countDifferent(address: number, bytes: number, word: number): number {
    let different = 0
    for (const { contents, offset, bytes: count } of this.pieces(address, bytes, 'read')) {
      different += contents.countDifferent(offset, count, word)
    }
    return different
  }

  /**
   * Copies `bytes` to `target`. `from` reads the source: this device, or the other device of a copy between devices.
   */
  copy(target: number, source: number, bytes: number, from: DeviceMemory = this): void {
    const pieces = from.pieces(source, bytes, 'read')
    this.pieces(target, bytes, 'write')
    for (const piece of pieces) {
      for (const { contents, offset, bytes: count, done } of this.pieces(target + piece.done, piece.bytes, 'write')) {
        contents.copyFrom(offset, piece.contents, piece.offset + done, count)
      }
    }
  }

  // All pieces are checked before any is written, so that a fault leaves no partial operation.
  private pieces(address: number, bytes: number, access: 'read' | 'write'): Piece[] {
    const pieces: Piece[] = []
    for (let done = 0; done < bytes; ) {
      const at = address + done
      const extent = this.extentAt(at)
      if (extent.contents === null) throw this.illegal(at, 'the memory was freed by the process that shared it')
      if ((extent.access.devices & (1 << this.device)) === 0) {
        throw this.illegal(at, `memory of ${extent.memory?.name}, without access for this device`)
      }
      if (access === 'write' && isReadOnly(extent, this.device)) {
        throw this.illegal(at, `memory of ${extent.memory?.name}, which this device may only read`)
      }
      const count = Math.min(bytes - done, extent.base + extent.bytes - at)
      pieces.push({ contents: extent.contents, offset: at - extent.base + extent.contentsOffset, bytes: count, done })
      done += count
    }
    return pieces
  }

  /** Whether a part of the range is mapped for this device to read only. */
  hasReadOnly(address: number, bytes: number): boolean {
    const { reservation } = this.space.find(address)!
    if (!reservation?.hasReadOnly) return false
    for (let at = address; at < address + bytes; ) {
      const mapping = reservation.at(at)
      if (mapping !== undefined && isReadOnly(mapping, this.device)) return true
      at = mapping === undefined ? reservation.granuleAfter(at) : mapping.base + mapping.bytes
    }
    return false
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

  /** One line for people, such as `DeviceMemory { of device 0 }`; console.log shows it. */
  toString(): string {
    return `DeviceMemory { of device ${this.device} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.device }
  }
}

/** Whether `device` may read the memory and not write it. */
function isReadOnly({ access: { readOnly = 0 } }: Extent, device: number): boolean {
  return (readOnly & (1 << device)) !== 0
}

/** The bytes of a view, over the same memory. */
export function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
}

showAsText(DeviceMemory)
