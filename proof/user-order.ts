// The order of work as a user knows it, for a device without an oracle: it comes only from the program's own records
// and waits, and from answers that the program got. The library may know more, and may have added waits, but a user
// cannot rely on that.

import type { Event, Stream } from '../src/index.js'

/** By stream: the number of its last work that is included. */
type VectorTime = ReadonlyMap<Stream, number>

export interface UserPoint {
  readonly stream: Stream
  readonly position: number
}

export class UserOrder {
  private readonly submitted = new Map<Stream, number>()
  /** by stream: the work that all of its later work comes after */
  private readonly after = new Map<Stream, VectorTime>()
  private readonly records = new Map<Event, VectorTime>()
  private seen: VectorTime = new Map()

  /** A point behind all work so far. The next call returns a later point. */
  pointOf(stream: Stream): UserPoint {
    const position = (this.submitted.get(stream) ?? 0) + 1
    this.submitted.set(stream, position)
    return { stream, position }
  }

  comesBefore({ stream, position }: UserPoint, later: Stream): boolean {
    if (stream === later || (this.seen.get(stream) ?? 0) >= position) return true
    return (this.after.get(later)?.get(stream) ?? 0) >= position
  }

  recorded(event: Event, stream: Stream): void {
    this.records.set(event, this.vectorTimeOf(stream))
  }

  waited(stream: Stream, event: Event): void {
    this.after.set(stream, merge(this.after.get(stream), this.records.get(event)))
  }

  toldOfEvent(event: Event): void {
    this.seen = merge(this.seen, this.records.get(event))
  }

  toldOfStream(stream: Stream): void {
    this.seen = merge(this.seen, this.vectorTimeOf(stream))
  }

  toldOfAll(): void {
    this.seen = new Map(this.submitted)
  }

  private vectorTimeOf(stream: Stream): VectorTime {
    return merge(this.after.get(stream), new Map([[stream, this.submitted.get(stream) ?? 0]]))
  }
}

function merge(first: VectorTime = new Map(), second: VectorTime = new Map()): VectorTime {
  const merged = new Map(first)
  for (const [stream, position] of second) merged.set(stream, Math.max(position, merged.get(stream) ?? 0))
  return merged
}
