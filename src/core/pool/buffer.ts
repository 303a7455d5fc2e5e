import { types } from 'node:util'
import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { bytesFrom, checkByteCount, describe, formatBytes } from '../base/bytes.js'
import { warnOfDisposal } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import { hex, showAsText } from '../base/readable.js'
import { type Bytes, checkBytes } from '../base/typed-arrays.js'
import { CU_STREAM_LEGACY_DEFAULT } from '../driver/constants.js'
import { type Context, unreachable } from '../driver/context.js'
import type { Driver } from '../driver/driver.js'
import { streamName } from '../order/ordered-stream.js'
import { relaxed } from '../order/relaxed.js'
import { StagedCopy } from '../order/staged-copy.js'
import { checkIsStream, type Stream } from '../order/stream.js'
import type { AccessLocation } from './access.js'
import type { Allocation, BufferOwner } from './allocation.js'
import { DeviceArray } from './array.js'
import { fillWithElement } from './fill.js'
import { labelOfBuffer, setLabel } from './labels.js'
import {
  adviceNumber,
  checkManaged,
  discardInDefaultStream,
  explainedDiscard,
  type MemoryAdvice,
  numberOf,
  wholePages,
} from './managed-memory.js'
import { ofThisThread, type TransferredBuffer } from './transferred-buffer.js'

/**
 * Device memory from a pool. Copies run in the stream that the buffer was allocated on. `free()` frees it, and so
 * does the end of a `using` block. After that every use throws PoolError, except disposing, which does nothing.
 */
export class DeviceBuffer implements Disposable {
  /** Made by pools. `tag` names one use of the allocation; a stale buffer's tag matches nothing. */
  constructor(
    /** @internal */
    public allocation: Allocation,
    /** @internal */
    readonly tag: number,
  ) {}

  /** The pool, or outermost wrapper, that handed the buffer out. */
  get pool(): BufferOwner {
    return this.allocation.owner
  }

  /** The stream of the allocation; for a freed buffer perhaps the stream of the memory's next use. */
  get stream(): Stream {
    return this.allocation.stream
  }

  /**
   * A name for people, '' at first: `pool.live()`, errors and debug mode show it. Setting it takes less than a
   * microsecond; a buffer without a label costs nothing. In shared caching and block pools all threads see it, also
   * after `adopt`; it has at most 56 bytes of UTF-8 there. In a shared arena it ends with `transfer`. Throws
   * PoolError for a freed buffer, TypeError for anything but text, RangeError for a longer label of a shared pool.
   */
  get label(): string {
    return labelOfBuffer(this)
  }

  /** Names the buffer. */
  set label(text: string) {
    this.addressFor('label')
    setLabel(this, text)
  }

  /**
   * Identifies the buffer in its pool, together with the tag.
   * @internal
   */
  get record(): number {
    return this.allocation.record
  }

  /** The device address, for kernels and any other library. */
  get ptr(): number {
    return this.addressFor('ptr')
  }

  /**
   * The device address, for work that `call` is about to submit. Throws PoolError, in the name of `call`, for a freed
   * buffer, and while its pool sleeps.
   * @internal
   */
  addressFor(call: string): number {
    return this.allocation.addressOf(this.record, this.tag, call)
  }

  /** Bytes requested. */
  get byteLength(): number {
    return this.allocation.requestedBytesOf(this.record, this.tag, 'byteLength')
  }

  /** The number of the device that the memory is on. */
  get device(): number {
    return this.allocation.pool.context.ordinal
  }

  /** @internal */
  get context(): Context {
    return this.allocation.pool.context
  }

  /**
   * Whether work of `context` can use the memory: its own device always can, other devices once they were given
   * access.
   * @internal
   */
  reachableFrom(context: Context): boolean {
    return context === this.context || this.allocation.pool.reachableFrom(context)
  }

  /** True after the buffer was freed or its pool closed. */
  get freed(): boolean {
    return !this.allocation.isLive(this.record, this.tag)
  }

  /**
   * Gives the memory back to the pool. Work submitted to `stream` before this call may still use it; the default is
   * the stream of the allocation. If another stream uses the buffer, free it there, or announce the use with
   * `recordUse`. A stream other than the allocation's must wait for the allocation's stream first, since memory is
   * valid in that stream's order. The host does not wait.
   */
  free(stream?: Stream): void {
    this.allocation.free(this, stream)
  }

  /** `free()` at the end of a `using` block; nothing when already freed. Where `free` throws, this warns. */
  [Symbol.dispose](): void {
    if (!this.allocation.isLive(this.record, this.tag)) return
    try {
      this.allocation.free(this)
    } catch (error) {
      warnOfDisposal(this, error, '')
    }
  }

  /** Work submitted to `stream` before the free uses this buffer too: its memory then waits for that work as well. */
  recordUse(stream: Stream): void {
    checkIsStream('recordUse', stream)
    if (this.allocation.pool.servesCaptures === true) stream.checkUsable('recordUse')
    else stream.checkOpen('recordUse')
    this.allocation.recordUse(this.record, this.tag, stream)
  }

  /**
   * Gives up the buffer, for `pool.adopt` in another thread that shares the pool. Any use of it here from now on
   * throws PoolError. Throws PoolError if the pool is not shared.
   */
  transfer(): TransferredBuffer {
    const { owner } = this.allocation
    if (owner.handOver === undefined) throw ofThisThread()
    return owner.handOver(this)
  }

  /**
   * Tells a pool in debug mode that work on `stream` is about to use the buffer, if another library submits the work;
   * `call` is its name in messages. Copies and launches of this package tell it themselves. A use of a spillable buffer
   * throws PoolError for a captured stream. Other buffers do nothing.
   */
  noteUse(stream: Stream, call: string): void {
    this.allocation.noteUse?.(stream, call)
  }

  /**
   * Copies `source` to the device, from byte `byteOffset` of the buffer on. The source may be changed after the call.
   * The driver takes a copy first. For a large source, such as 16 MiB, the host waits while the stream is busy.
   * Pinned memory is read when the copy runs instead: use `HostBuffer.copyTo`, or announce it with `recordUse`.
   */
  write(source: ArrayBufferView | ArrayBuffer, byteOffset = 0): void {
    const view = viewOf('write', source)
    const target = this.rangeOf('write', byteOffset, view.byteLength)
    if (view.byteLength === 0) return
    const driver = this.driverFor('write')
    this.stream.submit('write', handle => driver.cuMemcpyHtoDAsync(target, view, handle))
  }

  /** `write` that returns when the data has arrived. */
  writeSync(source: ArrayBufferView | ArrayBuffer, byteOffset = 0): void {
    const view = viewOf('writeSync', source)
    const target = this.rangeOf('writeSync', byteOffset, view.byteLength)
    const driver = this.driverFor('writeSync')
    this.stream.clocks.registry.checkLegacyUsable('writeSync')
    this.stream.synchronize()
    if (view.byteLength > 0) driver.cuMemcpyHtoD(target, view)
    // The driver returns when it has taken the data, before the data has arrived.
    driver.cuStreamSynchronize(CU_STREAM_LEGACY_DEFAULT)
  }

  /**
   * The contents as of this call in stream order, without blocking Node. With more than 64 MiB at a time, the end
   * blocks while kernels run: the driver waits for them before it releases the host memory.
   */
  async read(byteOffset = 0, byteLength = this.rest('read', byteOffset)): Promise<Bytes> {
    const source = this.rangeOf('read', byteOffset, byteLength)
    this.driverFor('read')
    const result = new Uint8Array(byteLength)
    if (byteLength === 0) return result
    using copy = new StagedCopy(this.stream, byteLength)
    copy.start(source, byteLength)
    await this.stream.finished()
    result.set(copy.arrived(byteLength))
    return result
  }

  /** The contents, after waiting for the work submitted to the buffer's stream. */
  readSync(byteOffset = 0, byteLength = this.rest('readSync', byteOffset)): Bytes {
    const source = this.rangeOf('readSync', byteOffset, byteLength)
    const result = new Uint8Array(byteLength)
    this.driverFor('readSync')
    this.stream.clocks.registry.checkLegacyUsable('readSync')
    this.stream.synchronize()
    if (byteLength > 0) this.stream.context.activate().cuMemcpyDtoH(result, source)
    return result
  }

  /** Sets every byte of a part, or of all, to `value` (0 to 255). */
  fill(value: number, byteOffset = 0, byteLength = this.rest('fill', byteOffset)): void {
    if (!Number.isInteger(value) || value < 0 || value > 255) {
      throw new OutOfRangeError(`fill: value must be a whole number from 0 to 255, not ${describe(value)}`)
    }
    this.fillBy(byteOffset, byteLength, (driver, target, stream) =>
      driver.cuMemsetD8Async(target, value, byteLength, stream),
    )
  }

  /**
   * Of a pool with backing 'managed': moves the memory to a device (the pool's own) or to the 'host' before it is used
   * there, in this buffer's stream. Throws PoolError for other pools, on a device without concurrent access to managed
   * memory, and for a captured stream.
   */
  prefetch(location: AccessLocation = this.allocation.pool): void {
    const bytes = this.managedBytes('prefetch')
    const place = numberOf('prefetch', location, this.context)
    const target = this.rangeOf('prefetch', 0, bytes)
    const driver = this.driverFor('prefetch')
    this.stream.submit('prefetch', handle => driver.cuMemPrefetchAsync(target, bytes, place, handle))
  }

  /**
   * Of a pool with backing 'managed': tells the driver how the memory will be used, at once and not in stream order.
   * `location` is a device (the pool's own) or 'host'; 'readMostly' needs none. The advice is for whole pages of 64 KiB
   * within the buffer. It stays with the memory after the free: take it back by `unadvise`. Throws PoolError as
   * `prefetch` does, and RangeError or TypeError for an unknown advice.
   */
  advise(advice: MemoryAdvice, location: AccessLocation = this.allocation.pool): void {
    this.adviseOn('advise', advice, location)
  }

  /** Takes back what `advise` has told, with the same arguments. Throws as it does. */
  unadvise(advice: MemoryAdvice, location: AccessLocation = this.allocation.pool): void {
    this.adviseOn('unadvise', advice, location)
  }

  /**
   * Of a pool with backing 'managed': the contents of whole pages of 64 KiB within the buffer are not needed any more,
   * so that they are never moved. In this buffer's stream; until the next write they are undefined. Throws PoolError as
   * `prefetch` does, with a driver before 13.0, and for a buffer of the device's default stream.
   */
  discard(): void {
    const pages = wholePages(this.addressFor('discard'), this.managedBytes('discard'))
    if (this.stream.handle === CU_STREAM_LEGACY_DEFAULT) throw discardInDefaultStream()
    const driver = this.driverFor('discard')
    if (pages.bytes === 0) return
    try {
      this.stream.submit('discard', handle => driver.cuMemDiscardBatchAsync(pages.start, pages.bytes, handle))
    } catch (error) {
      throw explainedDiscard(error)
    }
  }

  /**
   * Repeats an element in a part, which has whole elements and begins at a multiple of their size.
   * @internal
   */
  fillWith(element: ArrayBufferView, byteOffset: number, byteLength: number): void {
    this.fillBy(byteOffset, byteLength, (driver, target, stream) =>
      fillWithElement(driver, target, byteLength, element, stream),
    )
  }

  /**
   * Copies all or a part of another buffer or array to byte `byteOffset`, in this buffer's stream. If the source has
   * another stream, this one must wait for the work there first, by an event (`stream.wait`) or on the host; the memory
   * of the source then waits for the copy. The source may be on another device: announce the copy there by
   * `source.recordUse`. Without access to that device, the driver copies through the host, ten times slower. Throws
   * PoolError if the order of the two streams is not known; that of streams of other libraries or devices is not
   * checked. Throws RangeError for ranges that overlap, as within one buffer: CUDA does not define such a copy.
   */
  copyFrom(
    source: DeviceBuffer | DeviceArray,
    byteOffset = 0,
    sourceOffset = 0,
    byteLength = sourceFor('copyFrom', source).rest('copyFrom', sourceOffset),
  ): void {
    const [from, target] = this.rangesOf('copyFrom', source, sourceOffset, byteOffset, byteLength)
    const reaches = source.reachableFrom(this.stream.context) // first, since it may ask a driver of another context
    const driver = this.driverFor('copyFrom', true)
    if (byteLength === 0) return
    if (source.stream !== this.stream) this.noteOtherStream(source)
    source.noteUse(this.stream, 'copyFrom')
    if (reaches) this.stream.submit('copyFrom', handle => driver.cuMemcpyDtoDAsync(target, from, byteLength, handle))
    else this.copyFromPeer(driver, target, source, from, byteLength)
  }

  /** `copyFrom` that waits for the work on both streams first and returns when the copy is done. */
  copyFromSync(
    source: DeviceBuffer | DeviceArray,
    byteOffset = 0,
    sourceOffset = 0,
    byteLength = sourceFor('copyFromSync', source).rest('copyFromSync', sourceOffset),
  ): void {
    const [from, target] = this.rangesOf('copyFromSync', source, sourceOffset, byteOffset, byteLength)
    const reaches = source.reachableFrom(this.stream.context)
    source.stream.checkOpen('copyFromSync')
    this.stream.checkOpen('copyFromSync')
    this.stream.clocks.registry.checkNoCapture('copyFromSync')
    this.driverFor('copyFromSync')
    source.noteUse(source.stream, 'copyFromSync')
    source.stream.synchronize()
    this.stream.synchronize()
    const driver = this.stream.context.activate()
    if (byteLength > 0 && reaches) driver.cuMemcpyDtoD(target, from, byteLength)
    else if (byteLength > 0) this.copyFromPeer(driver, target, source, from, byteLength)
    driver.cuCtxSynchronize()
  }

  /** One line for people, such as `DeviceBuffer { 1 MiB at 0x7f00, stream 0x10, live }`; console.log shows it. */
  toString(): string {
    const { name } = this.constructor
    if (this.freed) return `${name} { freed }`
    const label = this.label === '' ? '' : `'${this.label}', `
    return `${name} { ${label}${formatBytes(this.byteLength)} at ${hex(this.addressFor('toString'))}, ${streamName(this.stream.handle)}, live }`
  }

  /** The plain values that JSON.stringify writes; of a freed buffer only that it is freed. */
  toJSON(): object {
    if (this.freed) return { freed: true }
    return {
      ptr: this.addressFor('toJSON'),
      byteLength: this.byteLength,
      ...(this.label === '' ? {} : { label: this.label }),
      stream: this.stream.handle,
      device: this.device,
      freed: false,
    }
  }

  /**
   * What takes the buffer back when it is passed to `pool.free`. Throws unless `pool` handed the buffer out.
   * @internal
   */
  ownerFor(pool: BufferOwner): BufferOwner {
    if (this.pool !== pool) throw new PoolError('free: the buffer came from another pool; use buffer.free()')
    return pool
  }

  /**
   * The bytes of `source`, for a copy into this buffer. Throws TypeError for anything but a buffer or an array.
   * @internal
   */
  bytesOf(call: string, source: unknown): number {
    return sourceFor(call, source).rest(call, 0)
  }

  /**
   * The address of a part, after checking that the buffer has it. `argument` is the program's name of the offset.
   * @internal
   */
  rangeOf(call: string, byteOffset: number, byteLength: number, argument = 'byteOffset'): number {
    const ptr = this.addressFor(call)
    const whole = this.allocation.requestedBytesOf(this.record, this.tag, call)
    for (const [name, value] of [
      [argument, byteOffset],
      ['byteLength', byteLength],
    ] as const) {
      checkByteCount(value, `${call}: ${name}`, 0)
    }
    if (byteOffset + byteLength > whole) {
      throw new OutOfRangeError(
        `${call}: bytes ${byteOffset} to ${byteOffset + byteLength} do not lie in the buffer's ${whole}; ask for less or allocate more`,
      )
    }
    return ptr + byteOffset
  }

  /**
   * The bytes from `byteOffset` to the end.
   * @internal
   */
  rest(call: string, byteOffset: number): number {
    return bytesFrom(byteOffset, this.allocation.requestedBytesOf(this.record, this.tag, call))
  }

  /** The addresses of both ends of a copy, after checking that the buffers have the bytes. */
  private rangesOf(
    call: string,
    source: DeviceBuffer | DeviceArray,
    sourceOffset: number,
    byteOffset: number,
    byteLength: number,
  ): [from: number, target: number] {
    if (!sourceFor(call, source).context.sharesAddresses(this.context))
      throw unreachable(`${call}: the source`, this.context, source.context)
    const from = source.rangeOf(call, sourceOffset, byteLength, 'sourceOffset')
    const target = this.rangeOf(call, byteOffset, byteLength)
    const isApart = from + byteLength <= target || target + byteLength <= from
    if (isApart || !source.context.sharesDevice(this.context)) return [from, target]
    throw new OutOfRangeError(
      `${call}: source overlaps the target: ${byteLength} bytes from ${sourceOffset} on are to go to ${byteOffset}; copy through another buffer`,
    )
  }

  /**
   * The driver, with the context of the buffer's stream current, for work that `call` is about to submit there.
   * @internal
   */
  driverFor(call: string, canBeCaptured = false): Driver {
    if (canBeCaptured) this.stream.checkUsable(call)
    else this.stream.checkOpen(call)
    const { context } = this.stream
    if (!this.reachableFrom(context)) throw unreachable(`${call}: the buffer`, context, this.context)
    this.noteUse(this.stream, call)
    return context.activate()
  }

  /** The bytes of the buffer, if it is managed memory. */
  private managedBytes(call: string): number {
    const bytes = this.rest(call, 0)
    checkManaged(call, this.allocation.pool)
    return bytes
  }

  private adviseOn(call: 'advise' | 'unadvise', advice: MemoryAdvice, location: AccessLocation): void {
    const pages = wholePages(this.addressFor(call), this.managedBytes(call))
    const number = adviceNumber(call, advice)
    const place = numberOf(call, location, this.context)
    const driver = this.context.activate()
    if (pages.bytes > 0) relaxed(driver, () => driver.cuMemAdvise(pages.start, pages.bytes, number, place))
  }

  private fillBy(
    byteOffset: number,
    byteLength: number,
    work: (driver: Driver, target: number, stream: number) => void,
  ): void {
    const target = this.rangeOf('fill', byteOffset, byteLength)
    if (byteLength === 0) return
    const driver = this.driverFor('fill', true)
    this.stream.submit('fill', handle => work(driver, target, handle))
  }

  /** Refuses a copy that may come before work on the stream of the source, whose memory waits for it. */
  private noteOtherStream(source: DeviceBuffer | DeviceArray): void {
    const { stream } = this
    if (stream.mayComeBefore(source.stream)) {
      if (!stream.canFollow(source.stream)) throw this.unordered(source)
      stream.follow(source.stream)
    }
    if (stream.capture === null && stream.clocks === source.stream.clocks) source.recordUse(stream)
  }

  private unordered(source: DeviceBuffer | DeviceArray): PoolError {
    const [later, earlier] = [this.stream, source.stream].map(({ handle, closed }) =>
      streamName(closed ? null : handle),
    )
    return new PoolError(
      `copyFrom: the copy on ${later} may come before work on ${earlier}, the stream of the source; let it wait first (stream.wait(event))`,
      'ERR_STREAM_ORDER',
    )
  }

  /**
   * Copies in this buffer's stream, even without access to the source. With access this call is the slower one for
   * small copies.
   */
  private copyFromPeer(
    driver: Driver,
    target: number,
    source: DeviceBuffer | DeviceArray,
    from: number,
    bytes: number,
  ): void {
    const { context } = this
    this.stream.submit('copyFrom', handle =>
      driver.cuMemcpyPeerAsync(target, context.handle, from, source.context.handle, bytes, handle),
    )
  }
}

showAsText(DeviceBuffer)

/**
 * The buffer for a call that takes a whole one, of a buffer or of the array that has it. Throws TypeError for anything
 * else, and PoolError for a view, which does not own the memory.
 */
export function wholeBuffer(call: string, memory: DeviceBuffer | DeviceArray, argument = 'buffer'): DeviceBuffer {
  if (memory instanceof DeviceBuffer) return memory
  if (memory instanceof DeviceArray) return memory.wholeBuffer(call)
  throw new WrongTypeError(
    `${call}: ${argument} must be a DeviceBuffer or a DeviceArray, such as pool.allocate(bytes), not ${describe(memory)}`,
  )
}

/** The buffer that leaves by `pool.transfer`. Refuses a buffer that another pool or a wrapper handed out. */
export function bufferThatLeaves(memory: DeviceBuffer | DeviceArray, pool: BufferOwner): DeviceBuffer {
  const buffer = wholeBuffer('transfer', memory)
  if (buffer.pool === pool) return buffer
  throw new PoolError('transfer: the buffer came from another pool or a wrapper; use buffer.transfer()')
}

/** Device memory to copy from: all of a buffer, or the elements of an array. */
function sourceFor(call: string, source: unknown): DeviceBuffer | DeviceArray {
  if (source instanceof DeviceBuffer || source instanceof DeviceArray) return source
  const { copyTo } = (source ?? {}) as { readonly copyTo?: unknown }
  const remedy = typeof copyTo === 'function' ? 'call source.copyTo(buffer)' : 'use write for host memory'
  throw new WrongTypeError(
    `${call}: source must be a DeviceBuffer or a DeviceArray, not ${describe(source)}; ${remedy}`,
  )
}

function viewOf(call: string, source: ArrayBufferView | ArrayBuffer): ArrayBufferView {
  if (ArrayBuffer.isView(source)) {
    checkBytes(call, source)
    return source
  }
  if (types.isArrayBuffer(source)) return new Uint8Array(source) // `instanceof` knows this realm's only
  throw new WrongTypeError(
    `${call}: source must be a typed array, a DataView or an ArrayBuffer, not ${describe(source)}`,
  )
}
