// Records the allocations and frees of a pool as a trace. The trace can be replayed, or saved as a PyTorch memory
// snapshot for its viewers.

import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import type { ByteSize } from '../../../core/base/byte-size.js'
import { checkByteCount, describe } from '../../../core/base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../../core/base/errors.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import type { Stream } from '../../../core/order/stream.js'
import type { DeviceBuffer } from '../../../core/pool/buffer.js'
import { type AllocateOptions, isOptions } from '../../../core/pool/long-form.js'
import type { Pool } from '../../../core/pool/pool.js'
import type { TransferredBuffer } from '../../../core/pool/transferred-buffer.js'
import { Wrapper } from '../../../core/pool/wrappers/wrapper.js'
import { pickleSnapshot } from '../pytorch/pytorch-snapshot-writer.js'
import type { Trace } from '../trace.js'
import { CallStacks } from './call-stacks.js'
import { OutOfMemoryFile } from './out-of-memory-file.js'
import { RecordingEvents } from './recording-events.js'

/** Options of `recorded()`. */
export interface RecorderOptions {
  /**
   * whether to record the call stack of each allocation; default false. A number is the most frames of a stack, the
   * innermost; true is 1 less than `Error.stackTraceLimit`, usually 9. A stack takes 4 to 9 µs, most of it V8's
   * capture of frames
   */
  readonly stacks?: boolean | number
  /** smaller requests have no call stack; default 0. Large blocks hold most of the memory, and are few */
  readonly stackMinBytes?: number
  /**
   * how many of the last events to keep, 1 to 2,000,000, for a server that records all the time; default all. A free is
   * two events. Blocks that are live before the first one are kept, too
   */
  readonly last?: number
  /**
   * write the events to this path, as `save` does, when `allocate` throws OutOfMemoryError; default not. The file is
   * replaced at most once a minute. If it cannot be written, a process warning says why
   */
  readonly file?: string
}

/**
 * Wraps `upstream` so that every allocation and free is recorded from now on. Each event takes about 50 bytes of host
 * memory. Throws TypeError for an unknown option, and TypeError or RangeError for bad values.
 */
export function recorded(upstream: Pool, options: RecorderOptions = {}): RecordedPool {
  checkOptionNames('recorded', options, ['stacks', 'stackMinBytes', 'last', 'file'])
  const { stacks = false, stackMinBytes = 0, last = Infinity, file } = options
  if (typeof stacks !== 'boolean' && typeof stacks !== 'number')
    throw new WrongTypeError(`recorded: stacks must be true, false or a number of frames, not ${describe(stacks)}`)
  if (typeof stacks === 'number' && !(Number.isInteger(stacks) && stacks >= 1 && stacks <= MOST_FRAMES))
    throw new OutOfRangeError(`recorded: stacks must be 1 to ${MOST_FRAMES} frames, not ${describe(stacks)}`)
  checkByteCount(stackMinBytes, 'recorded: stackMinBytes', 0)
  if (stackMinBytes > 0 && stacks === false)
    throw new WrongTypeError('recorded: stackMinBytes needs stacks: pass stacks, too, or leave both out')
  if (typeof last !== 'number') throw new WrongTypeError(`recorded: last must be a number, not ${describe(last)}`)
  if (last !== Infinity && !(Number.isInteger(last) && last >= 1 && last <= MOST_LAST))
    throw new OutOfRangeError(`recorded: last must be 1 to ${MOST_LAST} events, not ${describe(last)}`)
  if (file !== undefined) checkPath('recorded: file', file)
  return new RecordedPool(upstream, { stacks, stackMinBytes, last, file })
}

const MOST_FRAMES = 200
/** They take 100 MB of host memory. */
const MOST_LAST = 2_000_000

/** Throws TypeError unless a value can be the path of a file; `what` names the call and the argument. */
function checkPath(what: string, path: unknown): void {
  if (typeof path !== 'string' || path === '' || path.includes('\0'))
    throw new WrongTypeError(`${what} must name a file, not ${describe(path)}`)
}

/** The checked options. */
interface Choice extends Required<Omit<RecorderOptions, 'file'>> {
  readonly file: string | undefined
}

/**
 * A pool that records its allocations and frees. Made by `recorded()`. What an arena drops by `reset`, `rewind` or
 * `close` is recorded as freed, at the next event or when the events are read.
 */
export class RecordedPool extends Wrapper {
  private readonly recording: RecordingEvents
  private readonly callStacks: CallStacks | null
  private readonly file: OutOfMemoryFile | null

  constructor(upstream: Pool, { stacks, stackMinBytes, last, file }: Choice) {
    super(upstream)
    this.recording = new RecordingEvents(upstream, undefined, last)
    this.callStacks = CallStacks.of(this.recording.stacks, stacks, stackMinBytes)
    this.file = file === undefined ? null : new OutOfMemoryFile(resolve(file)) // the folder may be changed later
  }

  /** As of `Pool`, and recorded. */
  override allocate(size: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    const bytes = typeof size === 'string' ? this.bytesOf(size) : size
    const { callStacks } = this
    const stack = callStacks?.begin(bytes) ? callStacks.numberOf(new Error()) : 0
    try {
      return this.record(super.allocate(bytes, stream, alignment), stack)
    } catch (error) {
      if (error instanceof OutOfMemoryError) {
        this.recordFailure(bytes, stream, error.figures.deviceFreeBytes, stack)
        this.file?.write(path => this.save(path))
      }
      throw error
    }
  }

  /** As of `Pool`, and recorded. */
  override tryAllocate(size: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    const bytes = typeof size === 'string' ? this.bytesOf(size) : size
    const { callStacks } = this
    const stack = callStacks?.begin(bytes) ? callStacks.numberOf(new Error()) : 0
    const buffer = super.tryAllocate(bytes, stream, alignment)
    if (buffer === null) this.recordFailure(bytes, stream, Number.NaN, stack)
    return buffer === null ? null : this.record(buffer, stack)
  }

  /** @internal */
  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const { allocation, record, tag } = buffer
    this.recording.freeing(allocation, record, tag, stream, () => super.release(buffer, stream))
  }

  /**
   * Records a free: the recorder does not see the buffer's use in another thread.
   * @internal
   */
  override handOver(buffer: DeviceBuffer): TransferredBuffer {
    const ptr = buffer.addressFor('transfer')
    const transferred = super.handOver(buffer)
    this.recording.end(ptr)
    return transferred
  }

  /** How many events were recorded, also those that `last` has let go. */
  get events(): number {
    this.recording.settle()
    return this.recording.count
  }

  /** The trace of all events so far, or of the last ones, ready for `replay`; `name` becomes its `file`. */
  trace(name = 'recorded'): Trace {
    this.recording.settle()
    return this.recording.trace(name)
  }

  /**
   * Writes all events so far, or the last ones, to `path` as a PyTorch memory snapshot (pickle, protocol 4). Throws
   * TypeError unless `path` names a file, and PoolError if it cannot be written.
   */
  save(path: string): void {
    checkPath('save: path', path)
    const bytes = pickleSnapshot(this.trace(path))
    try {
      writeFileSync(path, bytes)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      throw new PoolError(
        `save: ${path} cannot be written (${code}); name a file in a folder that you may write to`,
        'ERR_POOL',
        { cause: error },
      )
    }
  }

  private record(buffer: DeviceBuffer, stack: number): DeviceBuffer {
    this.recording.allocated(buffer, stack)
    return buffer
  }

  private recordFailure(
    bytes: number,
    place: Stream | AllocateOptions | undefined,
    deviceFreeBytes: number,
    stack: number,
  ): void {
    const stream = isOptions(place) ? place.stream : place
    this.recording.failed(bytes, (stream ?? this.defaultStream).handle, deviceFreeBytes, stack)
  }
}
