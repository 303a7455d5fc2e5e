// A value for each live buffer of a wrapper, such as the tag that it counts for. A WeakMap would take 0.4 µs a
// buffer, much of it in garbage collections.

import type { BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'

/** Keys up to here have a place in the array, of 8 bytes each. */
const MOST_PLACES = 2 ** 20

export class LiveTable<Value> {
  /** by key, for buffers of the first pool seen; the next buffer with a key overwrites the value */
  private readonly values: (Value | null)[] = []
  private source: BufferSource | null = null
  /** for buffers of other pools, such as a fallback's, and for larger keys */
  private readonly rest = new WeakMap<DeviceBuffer, Value>()

  /** Notes the value of a buffer that has just been handed out. */
  set(buffer: DeviceBuffer, value: Value): void {
    const key = keyOf(buffer)
    this.source ??= buffer.allocation.pool
    if (buffer.allocation.pool !== this.source || key >= MOST_PLACES) {
      this.rest.set(buffer, value)
      return
    }
    while (this.values.length <= key) this.values.push(null)
    this.values[key] = value
  }

  /** The value of a live buffer; null if the wrapper has not handed it out. */
  get(buffer: DeviceBuffer): Value | null {
    const key = keyOf(buffer)
    if (buffer.allocation.pool !== this.source || key >= MOST_PLACES) return this.rest.get(buffer) ?? null
    return this.values[key] ?? null
  }
}

/** A number from 0 that no other live buffer of the pool has. */
function keyOf({ record, tag }: DeviceBuffer): number {
  return record < 0 ? tag : record
}
