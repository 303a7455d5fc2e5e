// The host's side of device arenas and heaps, for one device. It launches the kernels that initialise, reset and grow
// them, and reads their counters. A stream of its own does the reading, so that counters can be read while kernels
// run.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { Device } from '../core/device/device.js'
import type { Context } from '../core/driver/context.js'
import { controlPtx } from '../core/kernel/device-code.js'
import type { Kernel, KernelArgument } from '../core/kernel/kernel.js'
import type { Extent } from '../core/kernel/launch-limits.js'
import { Module } from '../core/kernel/module.js'
import type { Clocks } from '../core/order/clocks.js'
import { relaxed } from '../core/order/relaxed.js'
import { StagedCopy } from '../core/order/staged-copy.js'
import { Stream } from '../core/order/stream.js'
import type { DeviceRegion } from './device-region.js'
import './simulated-memory.js'

const CONTROL_KERNELS = [
  'bump_initialise',
  'bump_reset',
  'bump_grow',
  'heap_initialise',
  'heap_reset',
  'heap_grow',
] as const

type ControlKernel = (typeof CONTROL_KERNELS)[number]

/** The control of a device, for `call`. Throws TypeError for anything but a Device, and PoolError for a closed one. */
export function controlOf(call: string, device: Device): MemoryControl {
  if (!(device instanceof Device)) throw new WrongTypeError(`${call}: device must be a Device, not ${describe(device)}`)
  return device.partOf(call, MemoryControl)
}

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

  /** Launches one of the shipped kernels. */
  launch(name: ControlKernel, grid: Extent, block: Extent, stream: Stream, ...args: readonly KernelArgument[]): void {
    this.kernel(name).launch({ grid, block, stream }, ...args)
  }

  /** Later reads see the effects of all work submitted to `stream` so far. */
  readAfter(stream: Stream): void {
    this.clocks.order(this.readingStream().slot, ...stream.covering, false)
  }

  /** A copy of device memory as it is now, while kernels may run; Node goes on meanwhile. */
  async read(region: DeviceRegion, address: number, bytes: number): Promise<Uint8Array> {
    const stream = this.readingStream()
    using copy = new StagedCopy(stream, bytes)
    region.recordUse?.(stream)
    copy.start(address, bytes)
    await stream.finished()
    return copy.arrived(bytes).slice()
  }

  /** The same, but blocks for the time of the copy. */
  readSync(region: DeviceRegion, address: number, bytes: number): Uint8Array {
    const stream = this.readingStream()
    const copy = new Uint8Array(bytes)
    region.recordUse?.(stream)
    this.context.activate().cuMemcpyDtoHAsync(copy, address, stream.handle)
    stream.synchronize()
    return copy
  }

  /** Called by the device's close. */
  close(): void {
    this.module?.close()
    this.module = null
    this.kernels.clear()
  }

  private kernel(name: ControlKernel): Kernel {
    // Kernels that the driver refused in a former call are still missing.
    if (this.kernels.size < CONTROL_KERNELS.length) relaxed(this.context.activate(), () => this.load())
    return this.kernels.get(name)!
  }

  private load(): void {
    this.module ??= new Module(this.context, this.defaultStream, controlPtx())
    for (const each of CONTROL_KERNELS) {
      if (this.kernels.has(each)) continue
      const kernel = this.module.kernel(each)
      kernel.resources() // loads the code now: loading later could wait for running kernels
      this.kernels.set(each, kernel)
    }
  }

  /** The stream is made when it is first needed, and ends with the device. */
  private readingStream(): Stream {
    if (this.reader === null || this.reader.closed) this.reader = Stream.create(this.clocks)
    return this.reader
  }
}
