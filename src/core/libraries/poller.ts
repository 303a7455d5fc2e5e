// Waits until one of many descriptors is ready, without looking again and again. The system call `poll` waits in one of
// libuv's four threads, so a process has at most one poller that waits for long. An eventfd ends the wait.

import { readSync, writeSync } from 'node:fs'
import { closeDescriptor, openSystem, refusal } from './system-calls.js'

const EFD_CLOEXEC = 0x80000
const EFD_NONBLOCK = 0x800
const POLLIN = 0x1
const POLLOUT = 0x4
const POLLERR = 0x8
const POLLHUP = 0x10
// struct pollfd: descriptor, events, events that came
const ENTRY_BYTES = 8
const FIRST_ENTRIES = 64
const NO_LIMIT = -1

/** A descriptor that can be read or written without waiting. An ended connection is ready to be read. */
export interface Ready {
  readonly descriptor: number
  readonly readable: boolean
  readonly writable: boolean
  /** whether the other end has closed, or failed; something unread may be left */
  readonly ended: boolean
}

/** A set of descriptors, and the wait for them. */
export class Poller {
  private readonly system = openSystem()
  private readonly bell: number
  private entries = new DataView(new ArrayBuffer(FIRST_ENTRIES * ENTRY_BYTES))
  /** descriptors by entry; the first is the bell */
  private readonly descriptors: number[] = []
  private readonly places = new Map<number, number>()

  constructor() {
    this.bell = this.system.calls.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    if (this.bell < 0) throw refusal(this.system, 'eventfd', 'to end a wait')
    this.watch(this.bell, false)
  }

  /** Adds a descriptor, or changes whether to wait until it can be written. Not while `wait` waits. */
  watch(descriptor: number, forWriting: boolean): void {
    this.add(descriptor, POLLIN | (forWriting ? POLLOUT : 0))
  }

  /** Adds a descriptor that is ready only once it has ended. Not while `wait` waits. */
  watchEnd(descriptor: number): void {
    this.add(descriptor, 0) // Linux reports an end unasked
  }

  private add(descriptor: number, events: number): void {
    const place = this.places.get(descriptor) ?? this.descriptors.push(descriptor) - 1
    this.places.set(descriptor, place)
    if ((place + 1) * ENTRY_BYTES > this.entries.byteLength) this.grow()
    this.entries.setInt32(place * ENTRY_BYTES, descriptor, true)
    this.entries.setInt16(place * ENTRY_BYTES + 4, events, true)
  }

  /** Removes a descriptor, before it is closed. Not while `wait` waits. */
  forget(descriptor: number): void {
    const place = this.places.get(descriptor)
    if (place === undefined) return
    this.places.delete(descriptor)
    const last = this.descriptors.pop()!
    if (last === descriptor) return
    this.descriptors[place] = last
    this.places.set(last, place)
    const from = this.descriptors.length * ENTRY_BYTES
    this.entries.setBigInt64(place * ENTRY_BYTES, this.entries.getBigInt64(from, true), true)
  }

  /** The descriptors that are ready; none after `wake`. The pending call keeps the process alive. */
  async wait(): Promise<Ready[]> {
    const count = this.descriptors.length
    await new Promise<void>((resolve, reject) => {
      this.system.calls.poll.async(this.entries, count, NO_LIMIT, error => (error ? reject(error) : resolve()))
    })
    const ready: Ready[] = []
    const found = Array.from({ length: count }, (_, place) => this.cameTo(place))
    // The wait looks at one descriptor after the other. An end that came before anything of these is seen now.
    this.system.calls.poll(this.entries, count, 0)
    for (let place = 0; place < count; place++) {
      const came = found[place] | (this.cameTo(place) & POLLHUP)
      if (came === 0) continue
      if (place === 0) readSync(this.bell, Buffer.alloc(8))
      else
        ready.push({
          descriptor: this.descriptors[place],
          readable: (came & ~POLLOUT) !== 0,
          writable: (came & POLLOUT) !== 0,
          ended: (came & (POLLHUP | POLLERR)) !== 0,
        })
    }
    return ready
  }

  /** Ends the wait that waits now, or the next one. */
  wake(): void {
    writeSync(this.bell, new BigUint64Array([1n]))
  }

  close(): void {
    closeDescriptor(this.bell)
  }

  /** The events that came to an entry. */
  private cameTo(place: number): number {
    return this.entries.getInt16(place * ENTRY_BYTES + 6, true)
  }

  private grow(): void {
    const grown = new DataView(new ArrayBuffer(2 * this.entries.byteLength))
    new Uint8Array(grown.buffer).set(new Uint8Array(this.entries.buffer))
    this.entries = grown
  }
}

/** Waits with this thread until a descriptor can be read or its other end is closed, at most for `timeoutMs`. */
export function waitForReading(descriptor: number, timeoutMs: number): void {
  const entry = new DataView(new ArrayBuffer(ENTRY_BYTES))
  entry.setInt32(0, descriptor, true)
  entry.setInt16(4, POLLIN, true)
  openSystem().calls.poll(entry, 1, Math.max(0, Math.ceil(timeoutMs)))
}
