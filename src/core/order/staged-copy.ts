// A copy from the device through registered host memory (core/driver/staging-buffers.ts). The memory must outlive the
// copy. If the driver refused the host's wait, the copy may still run, and the memory goes back later.

import { isDriverError } from '../base/thrown.js'
import { StagingBuffers } from '../driver/staging-buffers.js'
import { relaxed } from './relaxed.js'
import type { Stream } from './stream.js'

export class StagedCopy implements Disposable {
  private readonly memory: Uint8Array
  private readonly staging: StagingBuffers
  /** slot and stamp that cover a copy which may still run */
  private pending: readonly [slot: number, stamp: number] | null = null

  /** For copies of at most `bytes` on an open `stream`, one at a time. */
  constructor(
    private readonly stream: Stream,
    bytes: number,
  ) {
    this.staging = StagingBuffers.of(stream.context)
    this.memory = relaxed(stream.context.activate(), () => this.staging.take(bytes))
  }

  /** Submits a copy behind everything submitted to the stream so far. */
  start(ptr: number, bytes: number): void {
    const { stream } = this
    const { covering } = stream
    const driver = stream.context.activate()
    stream.submit('read', handle => driver.cuMemcpyDtoHAsync(this.memory.subarray(0, bytes), ptr, handle))
    this.pending = covering
  }

  /** The first `bytes` of the copied contents. The host has waited for the copy. */
  arrived(bytes: number): Uint8Array {
    this.pending = null
    return this.memory.subarray(0, bytes)
  }

  [Symbol.dispose](): void {
    const { staging, memory, stream } = this
    const [slot, stamp] = this.pending ?? [0, 0]
    const { context, clocks } = stream
    const isOver = () => clocks.completed[slot] >= stamp
    try {
      if (isOver()) relaxed(context.driver, () => staging.giveBack(memory))
      else staging.giveBackOnce(memory, isOver)
    } catch (error) {
      if (!isDriverError(error)) throw error
      staging.giveBackOnce(memory, isOver) // the driver refused to unregister the memory
    }
  }
}
