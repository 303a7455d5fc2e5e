// Memory that two processes have mapped at the same time. It has granules of its own, since a process that receives a
// granule can access all of it. The driver counts the processes that hold the memory: it lives until the last one has
// freed it.

import { randomUUID } from 'node:crypto'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import { asUnsupported } from '../../driver/unsupported.js'
import type { Clocks } from '../../order/clocks.js'
import { checkStreamOf, type Stream } from '../../order/stream.js'
import { GrowableRange } from '../backing/growable-range.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import { askForLess, figuresOf } from '../out-of-memory.js'
import {
  asGone,
  checkShare,
  type PassOptions,
  passDescriptor,
  type ReceivedDescriptor,
  receiveDescriptor,
} from './descriptor-passing.js'
import { GrowableAllocation } from './growable-allocation.js'
import { MappedBuffer } from './mapped-buffer.js'

const FILE = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
const INSTEAD = "share a driver pool, if there is one: createDriverPool({ handleTypes: 'posixFileDescriptor' })"

/** How a buffer of another process is opened. */
export interface OpenOptions extends PassOptions {
  /** the stream of the buffer's copies (the device's default stream) */
  readonly stream?: Stream
}

/** A range of one piece, because one driver handle goes to the other process. */
class ExportableRange extends GrowableRange {
  constructor(
    context: Context,
    granuleBytes: number,
    memoryBytes: number,
    readonly id: string,
    private readonly handleOf: () => number,
    /** the descriptor of memory that another process made, null for own memory */
    readonly received: ReceivedDescriptor | null = null,
  ) {
    super(context, granuleBytes, memoryBytes)
  }

  /** The driver's handle of the memory. */
  get handle(): number {
    return this.pieces[0].handle
  }

  override close(): void {
    super.close()
    this.received?.close()
  }

  protected override pieceBytes(): number {
    return this.capacityBytes
  }

  protected override obtain(): number {
    return this.handleOf()
  }
}

/**
 * A buffer that another process can use at the same time. `exportTo` offers it at a path, and
 * `device.importBuffer(path)` opens it there. Made by the device: `device.createInterprocessBuffer(bytes)`. Each
 * process frees its own handle; the memory lives until all have. Streams order work within a process only: between
 * processes, wait on the host.
 */
export class InterprocessBuffer extends MappedBuffer {
  private constructor(
    allocation: GrowableAllocation,
    private readonly range: ExportableRange,
  ) {
    super(allocation)
  }

  /**
   * Makes new memory. When it throws, it has given everything back.
   * @internal
   */
  static create(clocks: Clocks, stream: Stream, size: ByteSize): InterprocessBuffer {
    const bytes = bytesOf(size, 'createInterprocessBuffer: bytes', clocks.context)
    checkStreamOf('createInterprocessBuffer', stream, clocks)
    stream.checkOpen('createInterprocessBuffer')
    const { context } = clocks
    const granuleBytes = shareableGranule('createInterprocessBuffer', context, INSTEAD)
    const memoryBytes = Math.ceil(bytes / granuleBytes) * granuleBytes
    const { freeBytes, totalBytes } = context.activate().cuMemGetInfo()
    if (memoryBytes > totalBytes) throw noRoom(bytes, freeBytes, totalBytes)
    const create = () => context.activate().cuMemCreate(memoryBytes, context.device, FILE)
    const range = new ExportableRange(context, granuleBytes, memoryBytes, randomUUID(), create)
    try {
      return InterprocessBuffer.mapped(clocks, stream, range, bytes)
    } catch (error) {
      throw asUnsupported(error, `createInterprocessBuffer: the driver makes no memory that can be shared; ${INSTEAD}`)
    }
  }

  /**
   * Opens the memory that another process shares at `path`.
   * @internal
   */
  static async open(
    clocks: Clocks,
    defaultStream: Stream,
    path: string,
    options: OpenOptions,
  ): Promise<InterprocessBuffer> {
    checkShare('importBuffer', path, options, ['timeoutMs', 'stream'])
    const { stream = defaultStream } = options
    checkStreamOf('importBuffer', stream, clocks)
    stream.checkOpen('importBuffer')
    const { context } = clocks
    const granuleBytes = shareableGranule('importBuffer', context, INSTEAD)
    const received = await receiveDescriptor(path, 'buffer', options)
    return received.use(descriptor => {
      stream.checkOpen('importBuffer')
      const { byteLength, memoryBytes, id } = received.announcement
      const load = () => context.activate().cuMemImportFromShareableHandle(descriptor, FILE)
      try {
        const range = new ExportableRange(context, granuleBytes, memoryBytes, id, load, received)
        return InterprocessBuffer.mapped(clocks, stream, range, byteLength)
      } catch (error) {
        throw asGone(error, 'importBuffer')
      }
    })
  }

  private static mapped(clocks: Clocks, stream: Stream, range: ExportableRange, bytes: number): InterprocessBuffer {
    const allocation = new GrowableAllocation(clocks, stream, range)
    try {
      allocation.grow(bytes)
    } catch (error) {
      allocation.discard()
      throw error
    }
    return new InterprocessBuffer(allocation, range)
  }

  /**
   * Passes the buffer to one other process of the same user, which calls `device.importBuffer(path)`; either may come
   * first. `path` names a socket file, which must not exist, and is removed when the promise settles. `exportTo`
   * first waits for the work submitted to the buffer's stream, so that its writes are visible. Rejects with
   * DescriptorError when no process opens the path in time (`timeoutMs`, 10 seconds), the system forbids it, or is
   * not Linux. Rejects with PoolError when this buffer was opened here: only its maker can share it.
   */
  async exportTo(path: string, options: PassOptions = {}): Promise<void> {
    checkShare('exportTo', path, options)
    this.addressFor('exportTo')
    if (this.range.received !== null) {
      throw new PoolError('exportTo: this buffer was opened here; let the process that made it share it')
    }
    if (!this.stream.closed) await this.stream.finished()
    else this.stream.clocks.synchronize()
    const byteLength = this.allocation.requestedBytesOf(this.record, this.tag, 'exportTo')
    const { handle, id, capacityBytes: memoryBytes } = this.range
    const descriptor = this.context.activate().cuMemExportToShareableHandle(handle, FILE)
    const announcement = { kind: 'buffer', id, byteLength, memoryBytes } as const
    const connection = await passDescriptor(path, descriptor, announcement, options)
    connection.close()
  }
}

/**
 * The granularity of memory that can be shared. Throws PoolError if the device cannot share memory; `instead` is what
 * the program can do then.
 */
export function shareableGranule(call: string, context: Context, instead: string): number {
  const obstacle = virtualMemoryObstacle(context)
  if (obstacle !== null) {
    throw new PoolError(`${call} needs virtual memory management: ${obstacle}; ${instead}`, 'ERR_NOT_SUPPORTED')
  }
  if (context.attribute('CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED') !== 1) {
    throw new PoolError(
      `${call}: this device exports no memory as file descriptors, which it does on Linux; ${instead}`,
      'ERR_NOT_SUPPORTED',
    )
  }
  return context.activate().cuMemGetAllocationGranularity(context.device)
}

function noRoom(bytes: number, freeBytes: number, totalBytes: number): OutOfMemoryError {
  return new OutOfMemoryError(
    `no room for ${formatBytes(bytes)}: the device has ${formatBytes(totalBytes)} in all`,
    figuresOf(bytes, { largestFreeBytes: freeBytes, maxPoolBytes: totalBytes }, freeBytes),
    [],
    askForLess(bytes, totalBytes),
  )
}
