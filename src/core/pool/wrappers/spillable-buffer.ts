// A buffer that may be on the device or on the host. Its copies are work of the stream that needs the room or the
// contents, so the host waits for nothing. The buffer has an address only within `use`.

import { formatBytes } from '../../base/bytes.js'
import { disposeOf } from '../../base/disposal.js'
import { PoolError } from '../../base/errors.js'
import { checkFlag, checkOptionNames } from '../../base/option-names.js'
import { showAsText } from '../../base/readable.js'
import type { Context } from '../../driver/context.js'
import { checkStreamOf, Stream } from '../../order/stream.js'
import { DeviceBuffer } from '../buffer.js'
import type { HostBuffer } from '../host/host-buffer.js'
import { isOptions } from '../long-form.js'
import type { Pool } from '../pool.js'
import { checkNote, RecordAllocation, type RecordPool } from '../record-allocation.js'

/** How `use` will treat the buffer. */
export interface UseOptions {
  /** the work submitted to this stream uses the buffer (the pool's default stream) */
  readonly stream?: Stream | undefined
  /** false: the work only reads, so that the copy on the host stays right and the next spill copies nothing (true) */
  readonly writes?: boolean | undefined
}

/** Work on a stream, up to a stamp of its clock. */
interface Work {
  readonly slot: number
  readonly stamp: number
}

/** The set that a spillable buffer belongs to, as the buffer sees it. */
export interface SpillingPlace {
  /** the pool that the device memory comes from */
  readonly pool: Pool
  /** Device memory on a stream; other buffers spill for it if they must. Throws like `pool.allocate`. */
  take(bytes: number, stream: Stream): DeviceBuffer
  /** Host memory, perhaps that of copies of buffers on the device; null when the host pool is full or closed. */
  takeHost(bytes: number): HostBuffer | null
  /** A buffer is on the device from now on, or was used there. */
  enter(buffer: SpillableBuffer, returnedBytes?: number): void
  /** A buffer has left the device. */
  leave(buffer: SpillableBuffer, copiedBytes: number): void
  /** A buffer was freed. */
  forget(buffer: SpillableBuffer): void
}

/** A buffer that may be on the device or on the host. Made by `allocate` of a `SpillableSet`. */
export class SpillableBuffer implements RecordPool, Disposable {
  /**
   * the context of the pool's device, also for memory that lies on another device
   * @internal
   */
  readonly context: Context
  /** true after `free` */
  freed = false
  /** null while the buffer is on the host */
  private memory: DeviceBuffer | null
  /** kept after a return, since it may still be right */
  private copy: HostBuffer | null = null
  /** whether `copy` has the contents */
  private isClean = false
  /** the work after which the contents are in place: the allocation, or the copy of a return */
  private ready: Work
  /** the copy of the last spill */
  private spilled: Work | null = null
  /** work that used the buffer since it came to the device, by stream slot */
  private readonly worked = new Map<number, number>()
  /** open uses by record: the streams whose work until the end of the use uses the buffer */
  private readonly uses = new Map<number, Set<Stream>>()
  private lastUse = 0

  /** Made by `allocate` of a `SpillableSet`. */
  constructor(
    private readonly set: SpillingPlace,
    /** the requested bytes */
    readonly byteLength: number,
    memory: DeviceBuffer,
  ) {
    this.context = set.pool.context
    this.memory = memory
    this.ready = workOf(memory.stream)
  }

  /** Whether it has device memory now. */
  get onDevice(): boolean {
    return this.memory !== null
  }

  /** Whether a use is open, which keeps it on the device. */
  get inUse(): boolean {
    return this.uses.size > 0
  }

  /**
   * The buffer for work on a stream, `use(stream)` or `use({ stream, writes })`, until it is disposed or freed; that
   * ends the use and keeps the memory. If it was on the host, work on the stream copies it back, and others may spill.
   * Throws like `pool.allocate`, and PoolError for a freed buffer, a closed pool, or a stream that is closed or
   * captured; the buffer stays where it was then.
   */
  use(place: Stream | UseOptions = {}, options: UseOptions = isOptions(place) ? place : {}): DeviceBuffer {
    checkOptionNames('use', options, ['stream', 'writes'])
    const { writes = true } = options
    const stream = isOptions(place) ? (options.stream ?? this.set.pool.defaultStream) : (place as Stream)
    checkFlag('use: writes', writes)
    this.checkLive('use')
    checkSpillStream('use', stream, this.set.pool)
    if (this.memory === null) this.bringBack(stream)
    else this.follow(stream, this.memory)
    if (writes) this.isClean = false
    const record = ++this.lastUse
    this.uses.set(record, new Set([stream]))
    return new DeviceBuffer(new UseAllocation(this, record, stream, this), 0)
  }

  /**
   * Moves the buffer to the host now, by work on `stream`. Returns false if the host has no room, or it is there
   * already. Throws PoolError while it is in use.
   */
  spill(stream: Stream = this.set.pool.defaultStream): boolean {
    this.checkLive('spill')
    checkSpillStream('spill', stream, this.set.pool)
    if (this.inUse) {
      throw new PoolError('spill: the buffer is in use; dispose what use() returned first', 'ERR_POOL_IN_USE')
    }
    return this.memory !== null && this.trySpill(stream)
  }

  /** Gives all memory back, in the order of the streams. Throws PoolError while it is in use, and when freed before. */
  free(): void {
    this.checkLive('free')
    if (this.inUse) {
      throw new PoolError('free: the buffer is in use; dispose what use() returned first', 'ERR_POOL_IN_USE')
    }
    const { memory } = this
    // A pool that was closed or reset first has taken its memory back already.
    if (memory?.freed === false) this.giveBack(memory)
    this.freed = true
    this.memory = null
    this.set.forget(this)
    this.forgetCopy()
  }

  /** `free()` at the end of a `using` block; nothing when already freed. Where `free` throws, this warns. */
  [Symbol.dispose](): void {
    if (!this.freed) disposeOf(this, () => this.free())
  }

  /** One line for people, such as `SpillableBuffer { 2 MiB on the host }`; console.log shows it. */
  toString(): string {
    if (this.freed) return 'SpillableBuffer { freed }'
    const place = this.onDevice ? `on the device${this.inUse ? ', in use' : ''}` : 'on the host'
    return `SpillableBuffer { ${formatBytes(this.byteLength)} ${place} }`
  }

  /** The plain values that JSON.stringify writes, without the contents. */
  toJSON(): object {
    const { byteLength, onDevice, inUse, freed } = this
    return freed ? { freed } : { byteLength, onDevice, inUse, freed }
  }

  /**
   * Moves the buffer to the host; false if there is no room.
   * @internal
   */
  trySpill(stream: Stream): boolean {
    const memory = this.memory!
    const ptr = memory.addressFor('spill')
    const isKnown = this.copy !== null
    if (this.copy?.freed === true) this.copy = null // its pool was closed
    const copy = this.copy ?? this.set.takeHost(this.byteLength)
    if (copy === null) return false
    if (this.memory !== memory || this.inUse) {
      if (copy !== this.copy) copy.free() // a callback of the host pool has used or freed the buffer meanwhile
      return false
    }
    this.copy = copy
    const copiedBytes = this.isClean ? 0 : this.byteLength
    try {
      this.orderAfterAll(stream)
      if (!this.isClean) {
        copy.recordUse(stream)
        const driver = this.context.activate()
        stream.submit('spill', handle => driver.cuMemcpyDtoHAsync(copy.bytes, ptr, handle))
        this.spilled = workOf(stream)
      }
      memory.free(stream === memory.stream ? undefined : stream)
    } catch (error) {
      // The contents are still on the device, unless the free was done before it failed.
      if (!memory.freed) {
        if (!isKnown) this.forgetCopy()
        throw error
      }
    }
    this.isClean = true
    this.memory = null
    this.worked.clear()
    this.set.leave(this, copiedBytes)
    return true
  }

  /**
   * Of a buffer on the device: gives up its copy, if that has the contents as `isClean` says. False for none.
   * @internal
   */
  dropCopy(isClean: boolean): boolean {
    if (this.copy === null || this.isClean !== isClean) return false
    this.forgetCopy()
    return true
  }

  /**
   * Ends a use.
   * @internal
   */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    const { record } = buffer
    const users = this.uses.get(record)
    if (users === undefined) throw this.endedUse('free')
    if (stream !== undefined) {
      checkStreamOf('free', stream, this.set.pool.defaultStream.clocks)
      users.add(stream)
    }
    for (const user of users) this.noteWork(user)
    this.uses.delete(record)
  }

  /** @internal */
  addressOf(record: number, _tag: number, call: string): number {
    if (!this.uses.has(record)) throw this.endedUse(call)
    return this.memory!.addressFor(call)
  }

  /** @internal */
  requestedBytesOf(record: number, _tag: number, call: string): number {
    if (!this.uses.has(record)) throw this.endedUse(call)
    return this.byteLength
  }

  /** @internal */
  isLive(record: number): boolean {
    return this.uses.has(record)
  }

  /** @internal */
  recordUse(record: number, _tag: number, stream: Stream): void {
    const users = this.uses.get(record)
    if (users === undefined) throw this.endedUse('recordUse')
    if (stream.context !== this.context) {
      throw new PoolError(
        'recordUse: the stream belongs to another device; use the buffer on one of its own',
        'ERR_OTHER_DEVICE',
      )
    }
    this.memory!.recordUse(stream)
    users.add(stream)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return this.memory?.reachableFrom(context) === true
  }

  /** Frees memory after all uses: on its stream, on the default stream, or on one made for that beside a capture. */
  private giveBack(memory: DeviceBuffer): void {
    const open = [memory.stream, this.set.pool.defaultStream].find(({ isOpen }) => isOpen)
    const stream = open ?? Stream.create(memory.stream.clocks)
    try {
      this.orderAfterAll(stream)
      memory.free(stream === memory.stream ? undefined : stream)
    } finally {
      if (open === undefined) stream.context.discard(() => stream.close())
    }
  }

  /** Work on `stream` comes after the one that has put the contents into `memory`. */
  private follow(stream: Stream, memory: DeviceBuffer): void {
    if (memory.freed) memory.addressFor('use') // throws, and says why
    orderAfter(stream, this.ready)
    this.set.enter(this)
  }

  private bringBack(stream: Stream): void {
    const copy = this.copy!
    if (copy.freed) {
      throw new PoolError('use: the host pool that has the contents was closed; close it last', 'ERR_POOL_CLOSED')
    }
    const memory = this.set.take(this.byteLength, stream)
    if (this.memory !== null) {
      memory.free() // a callback of the pool has used the buffer meanwhile
      this.follow(stream, this.memory)
      return
    }
    try {
      this.checkLive('use')
      if (this.spilled !== null) orderAfter(stream, this.spilled)
      copy.recordUse(stream)
      const driver = this.context.activate()
      const { ptr } = memory
      stream.submit('use', handle => driver.cuMemcpyHtoDAsync(ptr, copy.bytes, handle))
    } catch (error) {
      memory.free()
      throw error
    }
    this.memory = memory
    this.ready = workOf(stream)
    this.set.enter(this, this.byteLength)
  }

  private noteWork(stream: Stream): void {
    const [slot, stamp] = stream.covering
    this.worked.set(slot, Math.max(stamp, this.worked.get(slot) ?? 0))
  }

  /** Work on `stream` from now on comes after all uses of the device memory. */
  private orderAfterAll(stream: Stream): void {
    orderAfter(stream, this.ready)
    for (const [slot, stamp] of this.worked) orderAfter(stream, { slot, stamp })
  }

  private forgetCopy(): void {
    if (this.copy?.freed === false) this.copy.free()
    this.copy = null
    this.isClean = false
  }

  private checkLive(call: string): void {
    if (this.freed) {
      throw new PoolError(
        `${call}: the buffer was already freed; keep no reference to it after free()`,
        'ERR_BUFFER_FREED',
      )
    }
  }

  private endedUse(call: string): PoolError {
    return new PoolError(`${call}: the use of the buffer has ended; call use(stream) again`, 'ERR_BUFFER_FREED')
  }
}

showAsText(SpillableBuffer)

/** The allocation of one use. */
class UseAllocation extends RecordAllocation {
  noteUse(stream: Stream, call: string): void {
    checkNote(stream, call)
    if (stream.capture === null) return
    throw new PoolError(
      `${call}: the stream is being captured, and its graph would keep the address of a spillable buffer, which moves; ` +
        'capture work on a buffer of pool.allocate()',
      'ERR_STREAM_CAPTURED',
    )
  }
}

/**
 * Throws, in the name of `call`, for a stream that cannot move buffers of `pool`: TypeError for anything else than a
 * stream, PoolError for a stream that is closed, captured, or of another device.
 */
export function checkSpillStream(call: string, stream: Stream, pool: Pool): void {
  checkStreamOf(call, stream, pool.defaultStream.clocks)
  stream.checkOpen(call)
}

function workOf(stream: Stream): Work {
  const [slot, stamp] = stream.covering
  return { slot, stamp }
}

function orderAfter(stream: Stream, { slot, stamp }: Work): void {
  const { clocks } = stream
  if (slot !== stream.slot && clocks.completed[slot] < stamp) clocks.order(stream.slot, slot, stamp, false)
}
