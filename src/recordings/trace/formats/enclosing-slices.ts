// Slices of time on threads, and which of them are around a moment. Slices of one thread lie within each other or
// apart.

interface Slice<Value> {
  readonly start: number
  readonly end: number
  readonly value: Value
}

interface Thread<Value> {
  slices: Slice<Value>[]
  /** the slices that are open at the last moment, outermost first */
  readonly open: Slice<Value>[]
  next: number
}

/** More slices than any program nests. A damaged file could nest a million, and each allocation would list them. */
const MOST_OPEN = 512

/** First `add` all slices, then call `finish` once, then `around` for moments in the order of time. */
export class EnclosingSlices<Value> {
  private readonly threads = new Map<string, Thread<Value>>()

  add(thread: string, start: number, duration: number, value: Value): void {
    let entry = this.threads.get(thread)
    if (entry === undefined) {
      entry = { slices: [], open: [], next: 0 }
      this.threads.set(thread, entry)
    }
    entry.slices.push({ start, end: start + duration, value })
  }

  finish(): void {
    for (const thread of this.threads.values()) thread.slices.sort((a, b) => a.start - b.start || b.end - a.end)
  }

  /** The slices of a thread around a moment, outermost first. */
  around(name: string, moment: number): Value[] {
    const thread = this.threads.get(name)
    if (thread === undefined) return []
    const { slices, open } = thread
    for (; thread.next < slices.length && slices[thread.next].start <= moment; thread.next++) {
      const slice = slices[thread.next]
      while (open.length > 0 && open[open.length - 1].end <= slice.start) open.pop()
      if (slice.end >= moment && open.length < MOST_OPEN) open.push(slice)
    }
    while (open.length > 0 && open[open.length - 1].end < moment) open.pop()
    return open.map(slice => slice.value)
  }
}
