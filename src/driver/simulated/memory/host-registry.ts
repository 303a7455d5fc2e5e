// Host memory that was registered (pinned): the device reads and writes it when an operation runs, not at the call. A
// device pointer to it is made when first asked for, whatever the flags were, as with unified addressing.

import { EVERY_DEVICE } from './access-rights.js'
import type { AddressSpace, Region } from './address-space.js'
import { HostContents } from './host-contents.js'
import { isSameMemory } from './shared-buffer-identity.js'

interface Range {
  readonly start: number
  readonly end: number
  /** the device addresses, once somebody asked for them */
  region: Region | null
}

export class HostRegistry {
  private readonly ranges = new Map<ArrayBufferLike, Range[]>()

  constructor(private readonly space: AddressSpace) {}

  /** False when part of the memory is registered already. */
  register(host: ArrayBufferView): boolean {
    const start = host.byteOffset
    const end = start + host.byteLength
    const memory = this.known(host.buffer)
    const ranges = this.ranges.get(memory) ?? []
    if (ranges.some(range => start < range.end && range.start < end)) return false
    this.ranges.set(memory, [...ranges, { start, end, region: null }])
    return true
  }

  /** False when nothing was registered from the beginning of `host` on; its length does not matter, as in CUDA. */
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

  /** The address of registered memory on all devices; null when it is not registered, or no addresses are left. */
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

  /** The same memory by the buffer under which it is registered, where it is. */
  asRegistered(host: ArrayBufferView): Uint8Array {
    return new Uint8Array(this.known(host.buffer), host.byteOffset, host.byteLength)
  }

  private find(host: ArrayBufferView): Range | undefined {
    const start = host.byteOffset
    const end = start + host.byteLength
    return this.ranges.get(this.known(host.buffer))?.find(range => range.start <= start && end <= range.end)
  }

  /** The buffer under which this memory is registered, or the same: in each thread, shared memory has another buffer. */
  private known(buffer: ArrayBufferLike): ArrayBufferLike {
    if (!(buffer instanceof SharedArrayBuffer) || this.ranges.has(buffer)) return buffer
    for (const other of this.ranges.keys()) {
      if (other instanceof SharedArrayBuffer && isSameMemory(other, buffer)) return other
    }
    return buffer
  }
}
