// A device as the simulation of another library sees it, such as NCCL's. A real library calls CUDA itself, so nothing
// here counts as a driver call of the program. SimulatedDriver.libraryDevice makes it.

import { CudaError } from '../../base/errors.js'
import type { SimulatedContext } from './context.js'
import { bitOf } from './memory/access-rights.js'
import type { AddressSpace } from './memory/address-space.js'
import type { DeviceContents } from './memory/contents.js'
import type { DeviceMemory } from './memory/device-memory.js'
import type { Extent } from './memory/extent.js'
import { Mapping } from './memory/reservation.js'
import type { Captures } from './streams/captures.js'
import type { GatedStep } from './streams/gate.js'
import type { Scheduler } from './streams/scheduler.js'
import type { CapturedNode, StreamCapture, StreamQueue } from './streams/stream-queue.js'
import type { Streams } from './streams/streams.js'

/** Memory of one allocation or mapping, as it was when it was looked up. */
export interface MemoryPart {
  readonly base: number
  readonly bytes: number
  /** the allocation or mapping, and its contents: both are others once the memory was freed or unmapped */
  readonly extent: Extent
  readonly contents: DeviceContents | null
  /** by cuMemMap; else by cuMemAlloc, a pool or the host */
  readonly isMapped: boolean
  /** the types of handles that it can be exported as; 0 for none */
  readonly handleTypes: number
  /** whether the device may read and write it */
  readonly isAccessible: boolean
}

/** Work that was submitted to a stream, for `follow`. */
export interface SubmittedWork {
  readonly queue: StreamQueue
  readonly position: number
  readonly capture: StreamCapture | null
  readonly tails: readonly CapturedNode[]
}

/** The device of one context: its streams, and the memory that it reaches. */
export class LibraryDevice {
  readonly ordinal: number
  /** memory with the rights of the device */
  readonly memory: DeviceMemory

  constructor(
    private readonly context: SimulatedContext,
    /** the number of the machine of several processes; null if the device is of this driver only */
    readonly machineId: number | null,
    private readonly scheduler: Scheduler,
    private readonly streams: Streams,
    private readonly captures: Captures,
    private readonly space: AddressSpace,
  ) {
    this.ordinal = context.device.ordinal
    this.memory = context.memory
  }

  /** Whether the context takes no more work. */
  get isLost(): boolean {
    return this.context.fault !== null || this.context.retained === 0
  }

  /** Whether a stream of the context is captured, or the calling thread captures one. */
  get isCapturing(): boolean {
    return this.captures.isOpenFor(this.context)
  }

  /** The stream; null if it is not one of this context that takes work now. */
  queue(stream: number): StreamQueue | null {
    const queue = this.streams.find(this.context, stream)
    if (queue?.group !== this.context) return null
    try {
      this.captures.checkSubmit(queue)
      return queue
    } catch (error) {
      if (error instanceof CudaError) return null
      throw error
    }
  }

  /**
   * Submits work that waits for gates to a stream of this device. `begin` makes its steps, for a captured stream at
   * each launch of the graph, with the stream of the launch.
   */
  submitSteps(queue: StreamQueue, begin: (queue: StreamQueue) => readonly GatedStep[]): void {
    this.scheduler.submitSteps(queue, begin)
  }

  /** The work that `queue` has now. */
  submitted(queue: StreamQueue): SubmittedWork {
    const { submitted: position, capture, tails } = queue
    return { queue, position, capture, tails }
  }

  /** Makes later work of `queue` wait for `work`, unless only one of them is captured. */
  follow(queue: StreamQueue, work: SubmittedWork): void {
    if (queue === work.queue || queue.capture !== work.capture) return
    if (work.capture === null) this.scheduler.wait(queue, work.queue, work.position)
    else this.captures.follow(queue, work.capture, work.tails)
  }

  /** Waits on the host until `work` is complete. Captured work is not waited for. */
  finish({ queue, position, capture }: SubmittedWork): void {
    if (capture === null) this.scheduler.finish(queue, position)
  }

  /** Lets pending work go on, as at a driver call. */
  progress(): void {
    this.scheduler.progress()
  }

  /** The memory behind a range, in order of addresses; null if some of it is not there. */
  parts(ptr: number, bytes: number): MemoryPart[] | null {
    const parts: MemoryPart[] = []
    for (let at = ptr; at < ptr + bytes; ) {
      const region = this.space.find(at)
      const extent = region?.reservation ? region.reservation.at(at) : region
      if (extent === undefined) return null
      parts.push(this.partOf(extent))
      at = extent.base + extent.bytes
    }
    return parts
  }

  private partOf(extent: Extent): MemoryPart {
    const { base, bytes, contents, access } = extent
    const isAccessible = (access.devices & ~(access.readOnly ?? 0) & bitOf(this.context.device)) !== 0
    const handleTypes = extent instanceof Mapping ? extent.physical.handleTypes : 0
    return { base, bytes, extent, contents, isMapped: extent instanceof Mapping, handleTypes, isAccessible }
  }
}
