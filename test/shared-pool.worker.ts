// A thread that shares a pool, for shared-pool-threads.test.ts. It does one task after another, and posts each
// result; an error by its name and message.

import { parentPort, workerData } from 'node:worker_threads'
import type { OutOfMemoryError } from '../src/core/base/errors.js'
import { attachDevice, attachPool } from '../src/core/device/attach.js'
import type { Device } from '../src/core/device/device.js'
import type { SharedPoolDescriptor } from '../src/core/device/shared-pools.js'
import type { SharedEvent } from '../src/core/order/event.js'
import type { Stream } from '../src/core/order/stream.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import type { TransferredBuffer } from '../src/core/pool/transferred-buffer.js'

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

  /** Makes a pool that other threads can attach. */
  create(shared: SharedPoolDescriptor): SharedPoolDescriptor {
    return attachDevice(shared.device).createSharedPool().share()
  },

  hold(bytes: number, count: number): void {
    for (let index = 0; index < count; index++) held.push(pool.allocate(bytes, stream))
  },

  /** Labels all held buffers. */
  label(text: string): void {
    for (const buffer of held) buffer.label = text
  },

  setLimit(bytes: number): void {
    pool.maxPoolBytes = bytes
  },

  /** Holds a buffer on each of `count` new streams; returns their slots and addresses. */
  holdOnStreams(bytes: number, count: number): { slot: number; ptr: number }[] {
    return Array.from({ length: count }, () => {
      const buffer = pool.allocate(bytes, device.createStream())
      held.push(buffer)
      return { slot: buffer.stream.slot, ptr: buffer.ptr }
    })
  },

  /** Frees all held buffers, and allocates as many bytes on each of their streams, again and again. */
  cycle(turns: number): void {
    for (let turn = 0; turn < turns; turn++) {
      for (const [index, { stream, byteLength }] of held.entries()) {
        held[index].free()
        held[index] = pool.allocate(byteLength, stream)
      }
    }
  },

  /** Fills its cache with `count` blocks. */
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

  /** The error of a pool for a captured stream. */
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

  /** Fills a buffer late, and hands it on with an event behind the fill. */
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

  /** Copies a buffer of a second thread after its event, frees the buffer here, and hands the copy on. */
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
