import { OutOfRangeError } from '../core/base/argument-errors.js'
import { assert } from '../core/base/assert.js'
import type { Device } from '../core/device/device.js'
import type { Stream } from '../core/order/stream.js'
import { DEVICE_HEAP, type HeapGeometry, heapGeometry, SUPERBLOCK_BYTES, superblocksWithin } from './device-layout.js'
import type { DeviceRegion } from './device-region.js'
import { checkHeap } from './heap-check.js'
import { type HeapStats, heapStats, statsBytes } from './heap-stats.js'
import { KernelMemory, type KernelMemoryOptions } from './kernel-memory.js'
import { controlOf, type MemoryControl } from './memory-control.js'

const BLOCK_THREADS = 256
const MOST_BLOCKS = 256

/**
 * malloc and free for running kernels of a device, over a buffer of any pool; the buffer stays the caller's. Throws
 * TypeError for anything but a device and device memory, RangeError for too little, and PoolError for a closed device
 * or memory of another one.
 */
export function createDeviceHeap(device: Device, region: DeviceRegion, options?: KernelMemoryOptions): DeviceHeap {
  return new DeviceHeap(controlOf('createDeviceHeap', device), region, options)
}

/**
 * malloc and free for running kernels. A kernel takes it as `DeviceHeap *` and calls `allocate(bytes)`, which returns
 * nullptr if there is no room, and `free(block)`. A free of anything else than a live block is counted and ignored.
 * Memory outlives the kernel that took it, and another kernel may free it. Made by `createDeviceHeap`.
 */
export class DeviceHeap extends KernelMemory<HeapStats> {
  private readonly geometry: HeapGeometry

  constructor(control: MemoryControl, region: DeviceRegion, options: KernelMemoryOptions = {}) {
    super('createDeviceHeap', control, region, options, SUPERBLOCK_BYTES)
    const { ptr, stream } = this
    const { byteLength, capacityBytes = byteLength } = region
    this.geometry = heapGeometry(this.bytesFromStructure(capacityBytes))
    const { superblocksAt, reserved, slotMask } = this.geometry
    if (reserved === 0 || this.superblocks === 0) {
      const least = this.ptr - region.ptr + superblocksAt + SUPERBLOCK_BYTES
      const tables =
        capacityBytes === byteLength
          ? ''
          : `, with tables for the ${capacityBytes} it can grow to (a lower capacityBytes needs less)`
      throw new OutOfRangeError(
        `${this.call}: the region must have ${least} bytes at least${tables}, not ${byteLength}`,
      )
    }
    this.noteUse(stream, this.call)
    const { superblocks } = this
    control.launch(
      'heap_initialise',
      this.blocks,
      BLOCK_THREADS,
      stream,
      ptr,
      ptr + superblocksAt,
      reserved,
      superblocks,
      slotMask,
    )
    control.readAfter(stream)
  }

  /** Bytes of all superblocks: the most that can be handed out. */
  get maxPoolBytes(): number {
    return this.superblocks * SUPERBLOCK_BYTES
  }

  protected get statsBytes(): number {
    return statsBytes(this.geometry.reserved)
  }

  protected read(copy: Uint8Array): HeapStats {
    return heapStats(copy)
  }

  protected submitReset(ptr: number, stream: Stream): void {
    this.control.launch('heap_reset', this.blocks, BLOCK_THREADS, stream, ptr)
  }

  protected submitGrow(ptr: number, stream: Stream): void {
    this.control.launch('heap_grow', 1, BLOCK_THREADS, stream, ptr, this.superblocks)
  }

  protected checkContents(ptr: number): void {
    const { superblocksAt, reserved } = this.geometry
    const copy = this.control.readSync(this.region, ptr, superblocksAt)
    const view = new DataView(copy.buffer)
    assert(Number(view.getBigUint64(DEVICE_HEAP.base, true)) === ptr + superblocksAt, 'blocks begin behind the tables')
    assert(view.getUint32(DEVICE_HEAP.reserved, true) === reserved, 'the tables are as large as they were made')
    assert(view.getUint32(DEVICE_HEAP.limit, true) <= this.superblocks, 'no more is handed out than the region has')
    checkHeap(copy)
  }

  private get superblocks(): number {
    return superblocksWithin(this.geometry, this.bytesFromStructure())
  }

  /** Blocks of a kernel that clears the tables. */
  private get blocks(): number {
    return Math.min(MOST_BLOCKS, Math.ceil(this.geometry.superblocksAt / (8 * BLOCK_THREADS)))
  }
}
