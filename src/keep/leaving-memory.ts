// The memory of regions that a process has closed. It is unmapped only once the work on it is complete, and a device
// that seems full may have room then.

import { OutOfMemoryError } from '../core/base/errors.js'
import { untilDone } from '../core/order/polling.js'
import type { RegionBuffer } from './region-buffer.js'

export class LeavingMemory {
  /** until their memory is given back */
  private readonly buffers = new Set<RegionBuffer>()

  note(buffer: RegionBuffer): void {
    for (const other of this.buffers) if (other.allocation.closed) this.buffers.delete(other)
    this.buffers.add(buffer)
  }

  /**
   * Runs `open`, and once more after an OutOfMemoryError if regions had left memory by then, when that is free or
   * `isOver` returns true. Rejects with the error of `open`, and with the reason of `signal`.
   */
  async withRoom<T>(open: () => T, isOver: () => boolean, signal: AbortSignal | undefined): Promise<T> {
    try {
      return open()
    } catch (error) {
      const leaving = [...this.buffers].filter(({ freed, allocation }) => freed && !allocation.closed)
      if (!(error instanceof OutOfMemoryError) || leaving.length === 0) throw error
      await untilDone(() => isOver() || leaving.every(({ allocation }) => allocation.settle()), { signal })
    }
    return open()
  }
}
