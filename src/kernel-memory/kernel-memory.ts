import { formatBytes } from '../core/base/bytes.js'
import { disposeOf } from '../core/base/disposal.js'
import { PoolError } from '../core/base/errors.js'
import { checkOptionNames } from '../core/base/option-names.js'
import { showAsText } from '../core/base/readable.js'
import type { Context } from '../core/driver/context.js'
import type { DevicePointer } from '../core/kernel/kernel.js'
import { checkStreamOf, type Stream } from '../core/order/stream.js'
import { checkRegion, type DeviceRegion, growRegion } from './device-region.js'
import type { MemoryControl } from './memory-control.js'

/** Options of memory for kernels. */
export interface KernelMemoryOptions {
  /** the stream that initialises it, and the default stream of `reset` and `grow` (the device's default stream) */
  readonly stream?: Stream
}

/**
 * Memory that running kernels allocate from. It lies in a region that stays the caller's: keep the region while this
 * is used. Order other streams that use it after `stream`. It is passed to a kernel as an argument like any buffer.
 */
export abstract class KernelMemory<Stats> implements DevicePointer, Disposable {
  /** the stream that initialised it, and the default stream of `reset` and `grow` */
  readonly stream: Stream
  protected isClosed = false

  protected constructor(
    protected readonly call: string,
    protected readonly control: MemoryControl,
    /** the memory that kernels allocate from; it stays the caller's */
    readonly region: DeviceRegion,
    options: KernelMemoryOptions,
    /** addresses of the structure are multiples of this */
    private readonly alignment: number,
  ) {
    checkOptionNames(call, options, ['stream'])
    checkRegion(call, region, control.context)
    const { stream = control.defaultStream } = options
    checkStreamOf(call, stream, control.clocks)
    this.stream = stream
    this.stream.checkOpen(call)
  }

  /**
   * The address of its structure, for kernels: `DeviceArena *` or `DeviceHeap *` of `cuda_mempool.cuh`. Throws
   * PoolError once closed.
   */
  get ptr(): number {
    return this.addressFor('ptr')
  }

  /**
   * The same for work that `call` is about to submit. Throws PoolError, in the name of `call`, once closed or while the
   * region cannot be used.
   * @internal
   */
  addressFor(call: string): number {
    if (this.isClosed) {
      throw new PoolError(`${call}: the memory for kernels is closed; make it again`, 'ERR_POOL_CLOSED')
    }
    const start = this.region.addressFor?.(call) ?? this.region.ptr
    return Math.ceil(start / this.alignment) * this.alignment
  }

  /** @internal */
  get context(): Context {
    return this.control.context
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.isClosed
  }

  /**
   * Whether kernels of another context can use the region's memory.
   * @internal
   */
  reachableFrom(context: Context): boolean {
    return this.region.reachableFrom?.(context) ?? context === this.region.context
  }

  /** Tells the region's buffer of a use, before it is submitted to `stream` by `call`. */
  noteUse(stream: Stream, call: string): void {
    this.region.noteUse?.(stream, call)
  }

  /**
   * The counters as they are now, also while kernels run. After `stream.finished()` they include all work of that
   * stream. Rejects with PoolError once closed.
   */
  async stats(): Promise<Stats> {
    return this.read(await this.control.read(this.region, this.addressFor('stats'), this.statsBytes))
  }

  /**
   * As `stats()`, but blocks for the time of a small copy; it does not wait for kernels. Throws PoolError once
   * closed.
   */
  statsSync(): Stats {
    return this.read(this.control.readSync(this.region, this.addressFor('statsSync'), this.statsBytes))
  }

  /**
   * Forgets all allocations and sets the counters to 0, after the work submitted to `stream` so far. Order other
   * streams that use the memory with that stream. Throws PoolError once closed, and for a stream that is closed or of
   * another device.
   */
  reset(stream: Stream = this.stream): void {
    this.submitReset(this.addressFor('reset'), this.usable('reset', stream))
  }

  /**
   * Makes the region `bytes` long in all. The new bytes serve work submitted to `stream` from now on; nothing moves,
   * and kernels of other streams go on. Throws RangeError for a wrong size, PoolError for a region that cannot grow,
   * and whatever the region's own `grow` throws.
   */
  grow(bytes: number, stream: Stream = this.stream): void {
    const ptr = this.addressFor('grow')
    this.usable('grow', stream)
    growRegion('grow', this.region, bytes)
    this.submitGrow(ptr, stream)
  }

  /**
   * Asserts that counters, tables and the host's view agree. Waits for all work; no kernel may allocate meanwhile.
   * Throws PoolError once closed.
   */
  check(): void {
    const ptr = this.addressFor('check')
    this.control.clocks.synchronize()
    this.checkContents(ptr)
  }

  /** Ends the use; the region stays the caller's. A second close does nothing. */
  close(): void {
    this.isClosed = true
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** Bytes of the region from the structure on, at its present length or at a given one. */
  protected bytesFromStructure(bytes = this.region.byteLength): number {
    return bytes - (this.ptr - this.region.ptr)
  }

  /** bytes from the structure on that have the counters */
  protected abstract get statsBytes(): number
  protected abstract read(copy: Uint8Array): Stats
  protected abstract submitReset(ptr: number, stream: Stream): void
  protected abstract submitGrow(ptr: number, stream: Stream): void
  protected abstract checkContents(ptr: number): void

  private usable(call: string, stream: Stream): Stream {
    checkStreamOf(call, stream, this.control.clocks)
    stream.checkUsable(call)
    this.noteUse(stream, call)
    return stream
  }

  /** One line for people, such as `DeviceHeap { in a region of 64 MiB, open }`; console.log shows it. */
  toString(): string {
    const { region, closed } = this
    const place = region.freed === true ? 'a freed region' : `a region of ${formatBytes(region.byteLength)}`
    return `${this.constructor.name} { in ${place}, ${closed ? 'closed' : 'open'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { context, region, closed } = this
    const regionBytes = region.freed === true ? 0 : region.byteLength
    return { memory: this.constructor.name, device: context.ordinal, regionBytes, closed }
  }
}

showAsText(KernelMemory)
