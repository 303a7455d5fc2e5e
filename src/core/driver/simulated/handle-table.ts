// Handles of streams, events, modules, kernels, pools, graphs and physical memory.

/** distance between handles, which are multiples of it */
const STRIDE = 16
const SHIFT = 4

/**
 * Handles of one kind. The number of a removed object is used again at once, the latest first, as the driver does
 * with streams and events. Code that uses handles as keys is meant to fail here. Each kind has a base of its own, so
 * that a handle is never valid for another kind.
 */
export class HandleTable<T extends object> {
  private readonly entries: (T | undefined)[] = []
  private readonly vacant: number[] = []

  constructor(private readonly base: number) {}

  add(entry: T): number {
    const index = this.vacant.pop() ?? this.entries.length
    this.entries[index] = entry
    return this.base + index * STRIDE
  }

  get(handle: number): T | undefined {
    const index = (handle - this.base) >>> SHIFT
    return this.base + index * STRIDE === handle ? this.entries[index] : undefined
  }

  remove(handle: number): T | undefined {
    const entry = this.get(handle)
    if (entry === undefined) return undefined
    const index = (handle - this.base) >>> SHIFT
    this.entries[index] = undefined
    this.vacant.push(index)
    return entry
  }

  removeWhere(condition: (entry: T) => boolean): void {
    for (const [index, entry] of this.entries.entries()) {
      if (entry !== undefined && condition(entry)) this.remove(this.base + index * STRIDE)
    }
  }
}
