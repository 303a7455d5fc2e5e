// Contents of registered host memory under its device address. host-registry.ts makes them.

import type { DeviceContents } from './contents.js'

/** An array of the program that the device reads and writes. */
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
