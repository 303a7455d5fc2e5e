// The streams of threads that share a device. One thread makes a stream, and ends it for all. Other threads have
// views of it, which they close for themselves. A stream has one name, and one object in each thread that knows it.

import { CU_STREAM_PER_THREAD } from '../src/core/driver/constants.js'
import { Stream } from '../src/core/order/stream.js'
import type { CallOrder, Point } from './call-order.js'
import { Holds } from './holds.js'
import type { SharedThread } from './shared-thread.js'

export class SharedStreams {
  /** by name: streams that their makers have not closed; 0 is the legacy default stream */
  readonly open = new Map<number, { readonly maker: SharedThread; readonly view: Stream }>()
  readonly holds = new Holds()
  /** by stream object of any thread: the name */
  private readonly names = new Map<Stream, number>()
  /** by closed stream object: the work submitted before */
  private readonly ended = new Map<Stream, Point>()

  constructor(private readonly order: CallOrder) {}

  /** A thread's default stream. The first thread makes it; the other threads have views. */
  addDefault(thread: SharedThread): void {
    this.names.set(thread.defaultStream, 0)
    if (!this.open.has(0)) this.open.set(0, { maker: thread, view: thread.defaultStream })
  }

  /** A thread makes a stream, or opens its per-thread default stream, at most once at a time. */
  make(thread: SharedThread, name: number, isOwnDefault: boolean): void {
    const isOpen = [...thread.views.values()].some(view => view.handle === CU_STREAM_PER_THREAD && !view.closed)
    if (isOwnDefault && isOpen) return
    const view = isOwnDefault ? new Stream(thread.clocks, CU_STREAM_PER_THREAD, false) : Stream.create(thread.clocks)
    this.open.set(name, { maker: thread, view })
    this.note(thread, name, view)
  }

  /** A thread's object of a stream, if the thread can use the stream. */
  view(thread: SharedThread, name: number): Stream | null {
    const stream = this.open.get(name)
    if (stream === undefined) return null
    const known = thread.views.get(name)
    if (known !== undefined && !known.closed) return known
    if (!stream.view.isShareable || thread.isDead) return null
    const view = Stream.borrow(thread.clocks, structuredClone(stream.view.share()))!
    this.note(thread, name, view)
    return view
  }

  /** The name of a stream, from any thread's object. */
  nameOf(view: Stream): number {
    return this.names.get(view) ?? 0
  }

  /** Whether the object belongs to the stream of that name. */
  isNamed(view: Stream, name: number): boolean {
    return this.names.get(view) === name
  }

  /** The work submitted to a closed stream before its end. */
  endOf(view: Stream): Point {
    return this.ended.get(view)!
  }

  /** A thread that adopted a buffer has the buffer's stream from then on. */
  meet(thread: SharedThread, view: Stream): void {
    if (this.names.has(view)) return
    const { handle, generation } = view
    const same = [...this.names].filter(([known]) => known.handle === handle && known.generation === generation)
    const [made, name] = same[0]
    this.note(thread, name, view)
    if (!this.open.has(name)) this.ended.set(view, this.ended.get(made)!)
  }

  /** Whether a stream ends for all threads when this one closes it. */
  endsFor(thread: SharedThread, name: number): boolean {
    return this.open.get(name)?.view === thread.views.get(name)
  }

  /** A thread closes a stream, which its maker ends for all. */
  close(thread: SharedThread, name: number): void {
    const view = thread.views.get(name)!
    const isForAll = this.endsFor(thread, name)
    const point = endOf(thread, view)
    try {
      view.close()
    } finally {
      if (view.closed) {
        this.ended.set(view, point)
        thread.views.delete(name)
        this.holds.forget(held => held === view)
        if (isForAll) this.forget(name)
      }
    }
  }

  /** Other threads end the streams of a dead one. */
  forgetAllOf(thread: SharedThread): void {
    for (const [name, { maker }] of [...this.open]) if (maker === thread && name !== 0) this.forget(name)
  }

  /**
   * Whether work comes before the next work of a thread's stream. For a closed stream: whether it is the stream's
   * own. Null is the host.
   */
  isBefore(point: Point, thread: SharedThread | null, later: Stream | null): boolean {
    if (this.order.comesBefore(point, null)) return true
    if (later === null || thread === null || thread.isDead) return false
    if (!later.closed) return this.order.comesBefore(point, thread.queueOf(later))
    const end = this.ended.get(later)
    return end?.queue === point.queue && point.position <= end.position
  }

  private forget(name: number): void {
    const { maker, view: made } = this.open.get(name)!
    const point = this.ended.get(made) ?? endOf(maker, made)
    for (const [view, of] of this.names) if (of === name && !this.ended.has(view)) this.ended.set(view, point)
    this.holds.forget(view => this.names.get(view) === name)
    this.open.delete(name)
  }

  private note(thread: SharedThread, name: number, view: Stream): void {
    this.names.set(view, name)
    thread.views.set(name, view)
  }
}

/** The point at which a stream ends: behind its last wait, which no earlier event covers. */
function endOf(thread: SharedThread, view: Stream): Point {
  const point = thread.pointOf(view)
  return { ...point, position: point.position + 0.5 }
}
