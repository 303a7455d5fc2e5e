// Registered (pinned) host memory, which operations read and write when they run, not at the call. Its device address
// is made at the first cuMemHostGetDevicePointer, whatever the flags, as with unified addressing.
// calls.ts and transfers.ts use it.

import { EVERY_DEVICE } from './access-rights.js'
import type { AddressRegion, AddressSpace } from './address-space.js'
import type { DeviceContents } from './contents.js'
import { isSameMemory } from './shared-buffer-identity.js'

interface Range {
  readonly start: number
  readonly end: number
  /** the device addresses, after the first cuMemHostGetDevicePointer */
  region: AddressRegion | null
}

/** The registered ranges of all buffers. */
export class HostRegistry {
  private readonly ranges = new Map<ArrayBufferLike, Range[]>()

  constructor(private readonly space: AddressSpace) {}

  /** False if part of the memory is registered already. */
  register(host: ArrayBufferView): boolean {
    const start = host.byteOffset
    const end = start + host.byteLength
    const memory = this.known(host.buffer)
    const ranges = this.ranges.get(memory) ?? []
    if (ranges.some(range => start < range.end && range.start < end)) return false
    this.ranges.set(memory, [...ranges, { start, end, region: null }])
    return true
  }

  /** False if no registered range begins where `host` does. The length of `host` does not matter, as in CUDA. */
  unregister(host: ArrayBufferView): boolean {
    const memory = this.known(host.buffer)
    const ranges = this.ranges.get(memory) ?? []
    const index = ranges.findIndex(range => range.start === host.byteOffset)
    if (index < 0) return false
    const [{ region }] = ranges.splice(index, 1)
    if (region !== null) this.space.release(region)
    if (ranges.length === 0) this.ranges.delete(memory)
    return true
  }

  /** Whether all of the memory is registered. */
  has(host: ArrayBufferView): boolean {
    return this.find(host) !== undefined
  }

  /** The device address of registered memory; null for other memory, or if no addresses are left. */
  devicePointer(host: ArrayBufferView): number | null {
    const range = this.find(host)
    if (range === undefined) return null
    if (range.region === null) {
      const bytes = range.end - range.start
      range.region = this.space.claim(bytes)
      range.region?.hold(null, new HostContents(new Uint8Array(host.buffer, range.start, bytes)), EVERY_DEVICE)
    }
    return range.region === null ? null : range.region.base + host.byteOffset - range.start
  }

  /** The same memory as a view of the buffer under which it is registered, if it is registered. */
  asRegistered(host: ArrayBufferView): Uint8Array {
    return new Uint8Array(this.known(host.buffer), host.byteOffset, host.byteLength)
  }

  private find(host: ArrayBufferView): Range | undefined {
    const start = host.byteOffset
    const end = start + host.byteLength
    return this.ranges.get(this.known(host.buffer))?.find(range => range.start <= start && end <= range.end)
  }

  /** The buffer under which this memory is registered, or `buffer`: each thread has its own buffer object. */
  private known(buffer: ArrayBufferLike): ArrayBufferLike {
    if (!(buffer instanceof SharedArrayBuffer) || this.ranges.has(buffer)) return buffer
    for (const other of this.ranges.keys()) {
      if (other instanceof SharedArrayBuffer && isSameMemory(other, buffer)) return other
    }
    return buffer
  }
}

/** Registered memory under its device address: an array of the program that the device reads and writes. */
export class HostContents implements DeviceContents {
  constructor(private readonly bytes: Uint8Array) {}

  get byteLength(): number {
    return this.bytes.length
  }

  fill(offset: number, bytes: number, word: number): void {
    for (let i = offset; i < offset + bytes; i++) this.bytes[i] = word >>> ((i & 3) * 8)
  }

  write(offset: number, source: Uint8Array): void {
    this.bytes.set(source, offset)
  }

  read(offset: number, target: Uint8Array): void {
    target.set(this.bytes.subarray(offset, offset + target.length))
  }

  copyFrom(offset: number, source: DeviceContents, sourceOffset: number, bytes: number): void {
    source.read(sourceOffset, this.bytes.subarray(offset, offset + bytes))
  }

  countDifferent(offset: number, bytes: number, word: number): number {
    const view = new DataView(this.bytes.buffer, this.bytes.byteOffset + offset, bytes)
    let different = 0
    for (let i = 0; i < bytes; i += 4) if (view.getUint32(i, true) !== word) different++
    return different
  }
}
