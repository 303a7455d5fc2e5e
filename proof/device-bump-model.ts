// DevicePool and DeviceArena of cuda/cuda_mempool.cuh as a model: one offset that threads raise, and give back the
// end of where they came too late. The shadow knows which bytes are whose.

import assert from 'node:assert/strict'
import { Cells, type Steps } from './device-atomics.js'

export type BumpRule = 'give back only the end' | 'saturate at what the limit can reach'

const OFFSET = 0
const LIMIT = 1

export class DeviceBumpModel {
  readonly cells = new Cells(2)
  private readonly taken: (readonly [from: number, to: number])[] = []

  constructor(
    limit: number,
    private readonly reserved: number,
    private readonly broken: BumpRule | null = null,
  ) {
    this.cells.values[LIMIT] = limit
  }

  /** Whether `size` bytes were there. */
  *allocate(size: number): Steps<boolean> {
    const from = yield* this.cells.add(OFFSET, size)
    const to = from + size
    const limit = yield* this.cells.load(LIMIT)
    if (to <= limit) {
      for (const [otherFrom, otherTo] of this.taken) assert.ok(to <= otherFrom || from >= otherTo, 'handed out twice')
      this.taken.push([from, to])
      return true
    }
    if (this.broken === 'give back only the end') yield* this.cells.reduceAdd(OFFSET, -size)
    else if ((yield* this.cells.compareAndSwap(OFFSET, to, from)) !== to) {
      const highest = this.broken === null ? this.reserved : limit
      yield* this.cells.reduce(OFFSET, offset => Math.min(offset, highest))
    }
    return false
  }

  *grow(limit: number): Steps<void> {
    yield* this.cells.reduce(LIMIT, before => Math.max(before, limit))
  }

  check(): void {
    for (const [, to] of this.taken)
      assert.ok(to <= this.cells.values[OFFSET], 'what is in use would be handed out again')
    assert.ok(this.cells.values[OFFSET] <= this.reserved)
  }
}
