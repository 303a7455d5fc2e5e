import { OutOfRangeError } from '../core/base/argument-errors.js'
import { assert } from '../core/base/assert.js'
import type { Device } from '../core/device/device.js'
import type { Stream } from '../core/order/stream.js'
import { type BumpStats, bumpStats, DEVICE_POOL } from './device-layout.js'
import type { DeviceRegion } from './device-region.js'
import { KernelMemory, type KernelMemoryOptions } from './kernel-memory.js'
import { controlOf, type MemoryControl } from './memory-control.js'

/** distance from the structure to the first byte that is handed out */
const STRUCTURE_BYTES = 256

/**
 * Memory that running kernels of a device allocate in a row, over a buffer of any pool; the buffer stays the caller's.
 * Throws like `createDeviceHeap`.
 */
export function createDeviceArena(device: Device, region: DeviceRegion, options?: KernelMemoryOptions): DeviceArena {
  return new DeviceArena(controlOf('createDeviceArena', device), region, options)
}

/**
 * Memory that running kernels take piece after piece, and give back all at once. A kernel takes it as `DeviceArena
 * *`, or as the simpler `DevicePool *`, and calls `allocate(bytes)`. That returns multiples of 16 bytes, or nullptr
 * once the arena is full; refusals are counted. Made by `createDeviceArena`.
 */
export class DeviceArena extends KernelMemory<BumpStats> {
  constructor(control: MemoryControl, region: DeviceRegion, options: KernelMemoryOptions = {}) {
    super('createDeviceArena', control, region, options, STRUCTURE_BYTES)
    const { ptr, maxPoolBytes, stream } = this
    if (maxPoolBytes < STRUCTURE_BYTES) {
      const least = ptr - region.ptr + 2 * STRUCTURE_BYTES
      throw new OutOfRangeError(`${this.call}: the region must have ${least} bytes at least, not ${region.byteLength}`)
    }
    this.noteUse(stream, this.call)
    control.launch('bump_initialise', 1, 1, stream, ptr, ptr + STRUCTURE_BYTES, maxPoolBytes, this.reservedBytes)
    control.readAfter(stream)
  }

  /**
   * The address of the first byte that is handed out. All pieces lie there one after another, in the order of their
   * allocation.
   */
  get base(): number {
    return this.ptr + STRUCTURE_BYTES
  }

  /** Bytes that can be handed out in all. */
  get maxPoolBytes(): number {
    return this.bytesFromStructure() - STRUCTURE_BYTES
  }

  protected get statsBytes(): number {
    return DEVICE_POOL.byteLength
  }

  protected read(copy: Uint8Array): BumpStats {
    return bumpStats(copy)
  }

  protected submitReset(ptr: number, stream: Stream): void {
    this.control.launch('bump_reset', 1, 1, stream, ptr)
  }

  protected submitGrow(ptr: number, stream: Stream): void {
    this.control.launch('bump_grow', 1, 1, stream, ptr, this.maxPoolBytes)
  }

  protected checkContents(ptr: number): void {
    const copy = this.control.readSync(this.region, ptr, DEVICE_POOL.byteLength)
    const field = (at: number) => Number(new DataView(copy.buffer).getBigUint64(at, true))
    assert(field(DEVICE_POOL.base) === ptr + STRUCTURE_BYTES, 'the memory begins behind the structure')
    assert(field(DEVICE_POOL.reserved) === this.reservedBytes, 'the region can grow as far as it could')
    assert(field(DEVICE_POOL.limit) <= this.maxPoolBytes, 'no more is handed out than the region has')
    assert(field(DEVICE_POOL.peak) <= this.maxPoolBytes, 'no more was ever handed out')
    const { takenBytes, peakBytes, maxPoolBytes } = this.read(copy)
    assert(takenBytes % 16 === 0 || takenBytes === maxPoolBytes, 'it is handed out in steps of 16 bytes')
    assert(takenBytes <= peakBytes, 'the peak is what is taken, at least')
  }

  private get reservedBytes(): number {
    const { byteLength, capacityBytes = byteLength } = this.region
    return this.bytesFromStructure(capacityBytes) - STRUCTURE_BYTES
  }
}
