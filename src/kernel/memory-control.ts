// What the host does with the memory of kernels, for one device: launches the kernels that initialise, reset and grow it,
// and reads its counters. Those are read on a stream of their own, so that they can be seen while kernels run.

import type { Context } from '../driver/context.js'
import type { Clocks } from '../order/clocks.js'
import { relaxed } from '../order/relaxed.js'
import { StagedCopy } from '../order/staged-copy.js'
import { Stream } from '../order/stream.js'
import { controlPtx } from './device-code.js'
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
    this.clocks.order(this.readingStream().slot, ...stream.covering, false)
  }

  /** A copy of device memory as it is now, whatever runs, without blocking Node. */
  async read(region: DeviceRegion, address: number, bytes: number): Promise<Uint8Array> {
    const stream = this.readingStream()
    using copy = new StagedCopy(stream, bytes)
    region.recordUse?.(stream)
    copy.start(address, bytes)
    await stream.finished()
    return copy.arrived(bytes).slice()
  }

  /** The same, blocking for as long as the copy takes. */
  readSync(region: DeviceRegion, address: number, bytes: number): Uint8Array {
    const stream = this.readingStream()
    const copy = new Uint8Array(bytes)
    region.recordUse?.(stream)
    this.context.activate().cuMemcpyDtoHAsync(copy, address, stream.handle)
    stream.synchronize()
    return copy
  }

  close(): void {
    this.module?.close()
    this.module = null
    this.kernels.clear()
  }

  private kernel(name: ControlKernel): Kernel {
    // What the driver refused in a former call is missing still.
    if (this.kernels.size < CONTROL_KERNELS.length) relaxed(this.context.activate(), () => this.load())
    return this.kernels.get(name)!
  }

  private load(): void {
    this.module ??= new Module(this.context, this.defaultStream, controlPtx())
    for (const each of CONTROL_KERNELS) {
      if (this.kernels.has(each)) continue
      const kernel = this.module.kernel(each)
      kernel.resources() // loads the code now: later that could wait for kernels that run
      this.kernels.set(each, kernel)
    }
  }

  /** Made at the first need, ended with the device. */
  private readingStream(): Stream {
    if (this.reader === null || this.reader.closed) this.reader = Stream.create(this.clocks)
    return this.reader
  }
}
