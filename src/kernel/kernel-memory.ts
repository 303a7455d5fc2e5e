import { PoolError } from '../base/errors.js'
import { checkOptionNames } from '../base/option-names.js'
import type { Context } from '../driver/context.js'
import { checkStreamOf, type Stream } from '../order/stream.js'
import { checkRegion, type DeviceRegion, growRegion } from './device-region.js'
import type { DevicePointer } from './kernel.js'
import type { MemoryControl } from './memory-control.js'

/** How memory for kernels is made. */
export interface KernelMemoryOptions {
  /** the stream that it is initialised in, and reset and grown in where none is named (the device's default stream) */
  readonly stream?: Stream
}

/**
 * Memory that running kernels allocate from, over a region that stays the caller's: hold that as long as this is used, and
 * order the streams that use it after the one it was made on. It goes to a kernel as an argument like any buffer.
 */
export abstract class KernelMemory<Stats> implements DevicePointer, Disposable {
  /** the stream on which counters are read */
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
    private readonly structureBytes: number,
  ) {
    checkOptionNames(call, options, ['stream'])
    checkRegion(call, region, control.context)
    this.stream = options.stream ?? control.defaultStream
    checkStreamOf(call, this.stream, control.clocks)
    this.stream.checkOpen(call)
  }

  /** The address of its structure, for kernels: `DeviceArena *` or `DeviceHeap *` of `cuda_mempool.cuh`. */
  get ptr(): number {
    this.checkOpen('ptr')
    return Math.ceil(this.region.ptr / this.alignment) * this.alignment
  }

  /** @internal */
  get context(): Context {
    return this.control.context
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.isClosed
  }

  /** Passed on to the region's buffer. */
  reachableFrom(context: Context): boolean {
    return this.region.reachableFrom?.(context) ?? context === this.region.context
  }

  /** Passed on to the region's buffer. */
  noteUse(stream: Stream, call: string): void {
    this.region.noteUse?.(stream, call)
  }

  /** The counters as they are now, also while kernels run; after `stream.finished()` they are that stream's last word. */
  async stats(): Promise<Stats> {
    return this.read(await this.control.read(this.region, this.opened('stats'), this.structureBytes))
  }

  /** `stats()` that blocks, for as long as a small copy takes and not for kernels. */
  statsSync(): Stats {
    return this.read(this.control.readSync(this.region, this.opened('statsSync'), this.structureBytes))
  }

  /**
   * Forgets all that was allocated, and sets the counters to 0, after the work submitted to `stream` so far; other streams
   * that use it must be ordered with that one.
   */
  reset(stream: Stream = this.stream): void {
    this.submitReset(this.opened('reset'), this.usable('reset', stream))
  }

  /**
   * Makes the region `bytes` long in all, and what is new available to work submitted to `stream` from now on; nothing moves,
   * and kernels of other streams go on. Throws PoolError for a region that cannot grow, and what its own `grow` throws.
   */
  grow(bytes: number, stream: Stream = this.stream): void {
    const ptr = this.opened('grow')
    this.usable('grow', stream)
    growRegion('grow', this.region, bytes)
    this.submitGrow(ptr, stream)
  }

  /** Asserts that counters, tables and the host tell one story. It waits for all work: nothing may allocate meanwhile. */
  check(): void {
    const ptr = this.opened('check')
    this.control.clocks.synchronize()
    this.checkContents(ptr)
  }

  /** Ends the use; the region stays the caller's. A second close does nothing. */
  close(): void {
    this.isClosed = true
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** Bytes of the region from the structure on, as long as it is now or can become. */
  protected bytesFromStructure(bytes = this.region.byteLength): number {
    return bytes - (this.ptr - this.region.ptr)
  }

  protected abstract read(copy: Uint8Array): Stats
  protected abstract submitReset(ptr: number, stream: Stream): void
  protected abstract submitGrow(ptr: number, stream: Stream): void
  protected abstract checkContents(ptr: number): void

  private opened(call: string): number {
    this.checkOpen(call)
    return this.ptr
  }

  private usable(call: string, stream: Stream): Stream {
    checkStreamOf(call, stream, this.control.clocks)
    stream.checkUsable(call)
    this.noteUse(stream, call)
    return stream
  }

  private checkOpen(call: string): void {
    if (this.isClosed) throw new PoolError(`${call}: the memory for kernels is closed; make it again`)
  }
}
