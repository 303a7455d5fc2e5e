// A thread that shares a pool, for shared-pool-threads.test.ts: it does what it is told, one task after another, and tells
// what came of it, an error by its name and message.

import { parentPort, workerData } from 'node:worker_threads'
import type { OutOfMemoryError } from '../src/base/errors.js'
import { attachDevice, attachPool } from '../src/device/attach.js'
import type { Device, SharedPoolDescriptor } from '../src/device/device.js'
import type { SharedEvent } from '../src/order/event.js'
import type { Stream } from '../src/order/stream.js'
import type { DeviceBuffer } from '../src/pool/buffer.js'
import type { SharedPool } from '../src/pool/shared/shared-pool.js'
import type { TransferredBuffer } from '../src/pool/transferred-buffer.js'

let device: Device
let pool: SharedPool
let stream: Stream
const held: DeviceBuffer[] = []

export const tasks = {
  /** Attaches a pool, and makes a stream; returns the pool's number of this thread. */
  attach(shared: SharedPoolDescriptor): number {
    device = attachDevice(shared.device)
    pool = attachPool(shared)
    stream = device.createStream()
    return pool.thread
  },

  /** Only tries. */
  attachOther(shared: unknown): void {
    attachPool(shared as SharedPoolDescriptor)
  },

  /** Makes a pool of its own that others can attach. */
  create(shared: SharedPoolDescriptor): SharedPoolDescriptor {
    return attachDevice(shared.device).createPool({ shared: true }).share()
  },

  hold(bytes: number, count: number): void {
    for (let index = 0; index < count; index++) held.push(pool.allocate(bytes, stream))
  },

  /** Puts so many blocks back among its own. */
  cache(bytes: number, count: number): void {
    const buffers = Array.from({ length: count }, () => pool.allocate(bytes, stream))
    for (const buffer of buffers) buffer.free()
  },

  transfer(): TransferredBuffer {
    return held.pop()!.transfer()
  },

  adopt(transferred: TransferredBuffer): number {
    const buffer = pool.adopt(transferred)
    held.push(buffer)
    return buffer.ptr
  },

  free(): void {
    held.pop()!.free()
  },

  figures(bytes: number): number {
    return pool.allocate(bytes).byteLength
  },

  tryAllocate(bytes: number): boolean {
    return pool.tryAllocate(bytes) !== null
  },

  trimTo(bytes: number): number {
    return pool.trimTo(bytes)
  },

  processDeferred(): number {
    return pool.processDeferred()
  },

  stats() {
    return pool.stats()
  },

  /** What a pool says to a stream that is captured. */
  capture(verb: 'allocate' | 'free' | 'recordUse'): void {
    const buffer = pool.allocate(1000)
    try {
      device.capture(stream, () => {
        if (verb === 'allocate') pool.allocate(1000, stream)
        else buffer[verb](stream)
      })
    } finally {
      buffer.free()
    }
  },

  setAccess(): void {
    pool.setAccess(device, 'readWrite')
  },

  /** Fills a buffer late, and hands it on with an event behind that. */
  produce(bytes: number, value: number): { buffer: TransferredBuffer; event: SharedEvent; handle: number } {
    const buffer = pool.allocate(bytes, stream)
    buffer.fill(value)
    const event = device.createEvent()
    event.record(stream)
    return { buffer: buffer.transfer(), event: event.transfer(), handle: stream.handle }
  },

  handle(): number {
    return stream.handle
  },

  /** Copies what another thread has produced, in the order of the event; frees it here, and hands the copy on. */
  consume(produced: { buffer: TransferredBuffer; event: SharedEvent }): TransferredBuffer {
    const event = device.adoptEvent(produced.event)
    stream.wait(event)
    const source = pool.adopt(produced.buffer)
    const copy = pool.allocate(source.byteLength, stream)
    copy.copyFrom(source)
    source.free(stream)
    return copy.transfer()
  },

  close() {
    return pool.close()
  },

  closeDevice(): void {
    device.close()
  },

  fail(): void {
    setImmediate(() => {
      throw new Error('as it was told')
    })
  },

  exit(): void {
    process.exit(0)
  },
}

export type Outcome = { readonly value: unknown } | { readonly error: Pick<OutOfMemoryError, 'name' | 'message'> }

function outcome(name: keyof typeof tasks, args: readonly unknown[]): Outcome {
  try {
    return { value: (tasks[name] as (...args: readonly unknown[]) => unknown)(...args) }
  } catch (error) {
    const { name, message, figures, remedy } = error as OutOfMemoryError
    const carried = { name, message, figures: figures && { ...figures }, remedy }
    return { error: carried }
  }
}

if (workerData?.does === 'tasks') {
  parentPort!.on('message', ([name, ...args]) => parentPort!.postMessage(outcome(name, args)))
}
