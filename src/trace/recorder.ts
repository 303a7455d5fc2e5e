// Records the allocations and frees of a pool as a trace. The trace can be replayed, or saved as a PyTorch memory
// snapshot for its viewers.

import { writeFileSync } from 'node:fs'
import { describe } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import { checkOptionNames } from '../base/option-names.js'
import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from '../pool/buffer.js'
import type { Pool } from '../pool/pool.js'
import { HandedOut } from '../pool/wrappers/handed-out.js'
import { Wrapper } from '../pool/wrappers/wrapper.js'
import { pickleSnapshot } from './pytorch/pytorch-snapshot-writer.js'
import { Action, type Trace } from './trace.js'
import { TraceBuilder } from './trace-builder.js'

/** Options of `recorded()`. */
export interface RecorderOptions {
  /** whether to record the call stack of each allocation, which takes about 2 µs each; default false */
  readonly stacks?: boolean
}

/**
 * Wraps `upstream` so that every allocation and free is recorded from now on. Each event takes about 50 bytes of host
 * memory. Throws TypeError for a bad or unknown option.
 */
export function recorded(upstream: Pool, options: RecorderOptions = {}): RecordedPool {
  checkOptionNames('recorded', options, ['stacks'])
  const { stacks = false } = options
  if (typeof stacks !== 'boolean')
    throw new TypeError(`recorded: stacks must be true or false, not ${describe(stacks)}`)
  return new RecordedPool(upstream, stacks)
}

const FRAME = /^\s*at (?:(.*?) \()?(.*?):(\d+):\d+\)?$/
/** Frames of the recorder itself at the top of a stack: `add` and the methods that called it. */
const OWN_FRAMES = 3

/** Where a buffer is that an arena may drop without a free. */
interface Place {
  readonly ptr: number
  /** the handle of the stream that it was allocated on */
  readonly stream: number
}

/**
 * A pool that records its allocations and frees. Made by `recorded()`. What an arena drops by `reset`, `rewind` or
 * `close` is recorded as freed, at the next event or when the events are read.
 */
export class RecordedPool extends Wrapper {
  private readonly builder = new TraceBuilder()
  private readonly handedOut: HandedOut
  /** of the buffers that `handedOut` lists */
  private readonly places = new WeakMap<DeviceBuffer, Place>()

  constructor(
    upstream: Pool,
    private readonly stacks: boolean,
  ) {
    super(upstream)
    this.handedOut = new HandedOut(
      upstream,
      (bytes, buffer) => {
        const { ptr, stream } = this.places.get(buffer)!
        this.addFree(ptr, bytes, stream)
      },
      () => {}, // the recording ends with the buffers that were held
    )
  }

  /** As of `Pool`, and recorded. */
  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    try {
      return this.record(super.allocate(bytes, stream, alignment))
    } catch (error) {
      if (error instanceof OutOfMemoryError) this.recordFailure(bytes, stream, error.figures.deviceFreeBytes)
      throw error
    }
  }

  /** As of `Pool`, and recorded. */
  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    const buffer = super.tryAllocate(bytes, stream, alignment)
    if (buffer === null) this.recordFailure(bytes, stream, Number.NaN)
    return buffer === null ? null : this.record(buffer)
  }

  /** @internal */
  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const ptr = buffer.allocation.addressOf(buffer.record, buffer.tag, 'free')
    const { byteLength } = buffer
    super.release(buffer, stream)
    this.handedOut.delete(buffer)
    this.addFree(ptr, byteLength, (stream ?? buffer.stream).handle)
  }

  /** How many events were recorded. */
  get events(): number {
    this.handedOut.settle()
    return this.builder.events
  }

  /** The trace of all events so far, ready for `replay`; `name` becomes its `file`. */
  trace(name = 'recorded'): Trace {
    this.handedOut.settle()
    return this.builder.build({ file: name, recorder: 'cuda-mempool' })
  }

  /** Writes all events so far to `path` as a PyTorch memory snapshot (pickle, protocol 4). */
  save(path: string): void {
    writeFileSync(path, pickleSnapshot(this.trace(path)))
  }

  private record(buffer: DeviceBuffer): DeviceBuffer {
    const { ptr, byteLength } = buffer
    const stream = buffer.stream.handle
    this.add(Action.alloc, ptr, byteLength, stream, this.stacks ? this.stackNumber() : 0)
    if (this.handedOut.isListed) {
      this.handedOut.add(buffer, byteLength)
      this.places.set(buffer, { ptr, stream })
    }
    return buffer
  }

  private recordFailure(bytes: number, stream: Stream | undefined, deviceFreeBytes: number): void {
    const stack = this.stacks ? this.stackNumber() : 0
    this.add(Action.outOfMemory, deviceFreeBytes, bytes, stream?.handle ?? 0, stack)
  }

  private addFree(ptr: number, bytes: number, stream: number): void {
    this.add(Action.freeRequested, ptr, bytes, stream)
    this.add(Action.freeCompleted, ptr, bytes, stream)
  }

  private add(action: number, address: number, bytes: number, stream: number, stack = 0): void {
    this.handedOut.settle() // frees that came before
    const timeUs = Math.round((performance.timeOrigin + performance.now()) * 1000)
    this.builder.add(action, address, bytes, stream, timeUs, stack)
  }

  private stackNumber(): number {
    const lines = new Error().stack?.split('\n').slice(1 + OWN_FRAMES) ?? []
    const entries = lines.map(line => {
      const [, name = '<anonymous>', filename = line.trim(), row = '0'] = FRAME.exec(line) ?? []
      return this.builder.stacks.entry(filename, Number(row), name)
    })
    return this.builder.stacks.number(entries)
  }
}
