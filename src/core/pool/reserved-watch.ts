import { MessageChannel, type MessagePort } from 'node:worker_threads'
import type { Stream } from '../order/stream.js'
import { publishReserved, publishWaits } from './channels.js'
import type { Pool } from './pool.js'

/** A change of the memory that a pool has of the device. */
export interface ReservedChange {
  /** bytes that the pool took from the device, or gave back to it */
  readonly bytes: number
  /** bytes that it has now */
  readonly reservedBytes: number
}

/** Tells a program when its pool grows or shrinks, or makes streams wait. */
export class ReservedWatch {
  private reservedBytes = 0
  private waits = 0

  constructor(
    private readonly onGrow: ((change: ReservedChange) => void) | undefined,
    private readonly onTrim: ((change: ReservedChange) => void) | undefined,
  ) {}

  /** Looks at the bytes that the pool has after a call. The program's callbacks run when that call has returned. */
  lookAtReserved(pool: Pool, reservedBytes: number): void {
    const bytes = reservedBytes - this.reservedBytes
    if (bytes === 0) return
    this.reservedBytes = reservedBytes
    publishReserved(pool, bytes, reservedBytes)
    const listener = bytes > 0 ? this.onGrow : this.onTrim
    if (listener !== undefined) queueMicrotask(() => listener({ bytes: Math.abs(bytes), reservedBytes }))
  }

  /** Looks at the waits that the pool has submitted, the last ones for `stream`. */
  lookAtWaits(pool: Pool, waits: number, stream: Stream): void {
    if (waits === this.waits) return
    const added = waits - this.waits
    this.waits = waits // first, since a subscriber may use the pool
    publishWaits(pool, stream, added)
  }
}

/** The two ends of a channel to a watch: another thread posts the bytes that a pool has to `theirs`. */
export interface WatchChannel {
  readonly theirs: MessagePort
  /** this thread's end, to be closed with the pool */
  readonly own: MessagePort
}

/** Opens a channel to the watch of `poolOf()`, which does not keep the process alive. */
export function watchFromAfar(watch: ReservedWatch, poolOf: () => Pool): WatchChannel {
  const { port1: own, port2: theirs } = new MessageChannel()
  own.on('message', (reservedBytes: number) => watch.lookAtReserved(poolOf(), reservedBytes))
  own.unref() // after `on`, which refs it
  return { own, theirs }
}
