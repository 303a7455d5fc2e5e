// What the host does with the memory of kernels, for one device: launches the kernels that initialise, reset and grow it,
// and reads its counters. Those are read on a stream of their own, so that they can be seen while kernels run.

import type { Context } from '../driver/context.js'
import { Staging } from '../driver/staging.js'
import type { Clocks } from '../order/clocks.js'
import { Event } from '../order/event.js'
import { Stream } from '../order/stream.js'
import { shippedPtx } from './device-code.js'
import type { DeviceRegion } from './device-region.js'
import type { Kernel, KernelArgument } from './kernel.js'
import type { Extent } from './launch-limits.js'
import { Module } from './module.js'
import './simulated-control.js'

const CONTROL_KERNELS = [
  'bump_initialise',
  'bump_reset',
  'bump_grow',
  'heap_initialise',
  'heap_reset',
  'heap_grow',
] as const

export type ControlKernel = (typeof CONTROL_KERNELS)[number]

export class MemoryControl {
  readonly context: Context
  private module: Module | null = null
  private readonly kernels = new Map<ControlKernel, Kernel>()
  private reader: Stream | null = null

  constructor(
    readonly clocks: Clocks,
    readonly defaultStream: Stream,
  ) {
    this.context = clocks.context
  }

  /** Runs one of the shipped kernels. */
  launch(name: ControlKernel, grid: Extent, block: Extent, stream: Stream, ...args: readonly KernelArgument[]): void {
    this.kernel(name).launch({ grid, block, stream }, ...args)
  }

  /** Lets what is read from now on be seen as of the work submitted to `stream` so far, or later. */
  readAfter(stream: Stream): void {
    const event = new Event(this.context)
    try {
      event.record(stream)
      this.readingStream().wait(event)
    } finally {
      event.close()
    }
  }

  /** A copy of device memory as it is now, whatever runs, without blocking Node. */
  async read(region: DeviceRegion, address: number, bytes: number): Promise<Uint8Array> {
    const stream = this.readingStream()
    const staging = Staging.of(this.context)
    const memory = staging.take(bytes)
    try {
      this.context.activate().cuMemcpyDtoHAsync(memory.subarray(0, bytes), address, stream.handle)
      region.recordUse?.(stream)
      await stream.finished()
      return memory.slice(0, bytes)
    } finally {
      staging.giveBack(memory)
    }
  }

  /** The same, blocking for as long as the copy takes. */
  readSync(region: DeviceRegion, address: number, bytes: number): Uint8Array {
    const stream = this.readingStream()
    const copy = new Uint8Array(bytes)
    this.context.activate().cuMemcpyDtoHAsync(copy, address, stream.handle)
    region.recordUse?.(stream)
    stream.synchronize()
    return copy
  }

  close(): void {
    this.module?.close()
    this.module = null
    this.kernels.clear()
  }

  private kernel(name: ControlKernel): Kernel {
    if (this.module === null) {
      this.module = new Module(this.context, this.defaultStream, shippedPtx('control'))
      for (const each of CONTROL_KERNELS) {
        const kernel = this.module.kernel(each)
        kernel.resources() // loads the code now: later that could wait for kernels that run
        this.kernels.set(each, kernel)
      }
    }
    return this.kernels.get(name)!
  }

  /** Made at the first need, ended with the device. */
  private readingStream(): Stream {
    if (this.reader === null || this.reader.closed) this.reader = Stream.create(this.clocks)
    return this.reader
  }
}
