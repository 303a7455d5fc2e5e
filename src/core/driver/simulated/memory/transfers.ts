// Copies and fills: checks and staging at the call, work in stream order. Called by calls.ts.

import { type BatchedCopy, type CopyDirection, MOST_BATCHED_COPIES } from '../../driver.js'
import type { CallInterceptor } from '../call-interceptor.js'
import type { SimulatedContext } from '../context.js'
import { IllegalAddress, type Scheduler } from '../streams/scheduler.js'
import type { StreamQueue } from '../streams/stream-queue.js'
import type { AddressSpace } from './address-space.js'
import { bytesOf, type DeviceMemory } from './device-memory.js'
import type { HostRegistry } from './host-registry.js'

/** Submits copies and fills to streams. */
export class Transfers {
  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly space: AddressSpace,
    private readonly hosts: HostRegistry,
    private readonly scheduler: Scheduler,
  ) {}

  /** From the host. Registered memory is read when the copy runs; pageable memory is copied aside now. */
  upload(context: SimulatedContext, queue: StreamQueue, target: number, source: ArrayBufferView): void {
    const { memory } = context
    if (!this.checkTarget(memory, target, source.byteLength)) return
    if (this.hosts.has(source)) {
      this.scheduler.submit(queue, () => memory.write(target, this.registered(source)))
    } else {
      const staged = bytesOf(source).slice()
      this.scheduler.submit(queue, () => memory.write(target, staged))
    }
  }

  /** To the host. The caller waits for the copy if the target is not registered. */
  download(context: SimulatedContext, queue: StreamQueue, target: ArrayBufferView, source: number): void {
    if (!this.checkRange(source, target.byteLength)) return
    const { memory } = context
    const pinned = this.hosts.has(target)
    this.scheduler.submit(queue, () => memory.read(source, pinned ? this.registered(target) : bytesOf(target)))
  }

  /** All copies are checked before any is submitted. The last one runs first, since CUDA promises no order. */
  batch(context: SimulatedContext, queue: StreamQueue, copies: readonly BatchedCopy[], direction: CopyDirection): void {
    const { length } = copies
    if (length < 1 || length > MOST_BATCHED_COPIES) {
      throw this.interceptor.invalid(`a batch has 1 to ${MOST_BATCHED_COPIES} copies, not ${length}`)
    }
    for (const { host, ptr } of copies) {
      if (!this.hosts.has(host)) throw this.interceptor.invalid('a batch has registered host memory only')
      if (direction === 'toDevice') this.checkTarget(context.memory, ptr, host.byteLength)
      else this.checkRange(ptr, host.byteLength)
    }
    const { memory } = context
    const pieces = [...copies].reverse()
    this.scheduler.submit(queue, () => {
      for (const { host, ptr } of pieces) {
        if (direction === 'toHost') memory.read(ptr, this.registered(host))
        else memory.write(ptr, this.registered(host))
      }
    })
  }

  copy(context: SimulatedContext, queue: StreamQueue, target: number, source: number, bytes: number): void {
    if (!this.checkTarget(context.memory, target, bytes) || !this.checkRange(source, bytes)) return
    this.scheduler.submit(queue, () => context.memory.copy(target, source, bytes))
  }

  /** Between two contexts. Each device accesses its own side, so neither needs access to the other. */
  copyPeer(
    queue: StreamQueue,
    target: number,
    targetContext: SimulatedContext,
    source: number,
    sourceContext: SimulatedContext,
    bytes: number,
  ): void {
    if (!this.checkTarget(targetContext.memory, target, bytes) || !this.checkRange(source, bytes)) return
    this.scheduler.submit(queue, () => targetContext.memory.copy(target, source, bytes, sourceContext.memory))
  }

  fill(context: SimulatedContext, queue: StreamQueue, target: number, word: number, bytes: number): void {
    if (!this.checkTarget(context.memory, target, bytes)) return
    this.scheduler.submit(queue, () => context.memory.fill(target, bytes, word))
  }

  private registered(host: ArrayBufferView): Uint8Array {
    if (!this.hosts.has(host)) throw new IllegalAddress('a copy uses host memory that is no longer registered')
    return bytesOf(host)
  }

  /** As `checkRange`; refuses memory that may only be read, too, which a GPU's driver knows at the call. */
  private checkTarget(memory: DeviceMemory, address: number, bytes: number): boolean {
    if (!this.checkRange(address, bytes)) return false
    if (!memory.hasReadOnly(address, bytes)) return true
    throw this.interceptor.invalid('the memory is mapped for reading only')
  }

  /** Refuses a range outside of an allocation or reservation, as the driver does at the call. False for no bytes. */
  private checkRange(address: number, bytes: number): boolean {
    this.interceptor.checkSize(bytes, 0)
    if (bytes === 0) return false
    const region = this.space.find(address)
    if (region === undefined || address + bytes > region.base + region.bytes) {
      const range = `${bytes} bytes from 0x${address.toString(16)}`
      throw this.interceptor.invalid(`${range} are not inside an allocation or reservation`)
    }
    return true
  }
}
