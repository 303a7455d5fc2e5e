import { PoolError } from '../../base/errors.js'
import { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } from '../../driver/constants.js'
import type { Clocks } from '../../order/clocks.js'
import { relaxed } from '../../order/relaxed.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceArray } from '../array.js'
import type { DeviceBuffer } from '../buffer.js'
import type { CloseReport } from '../closable-pool.js'
import {
  asGone,
  checkShare,
  type PassOptions,
  type ReceivedDescriptor,
  receiveDescriptor,
} from '../mapped/descriptor-passing.js'
import { decodePointer } from './exported-pointer.js'
import { StreamOrderedPool } from './stream-ordered-pool.js'

/**
 * A driver pool of another process, opened by `device.importPool(path)`. It gives access to blocks that its owner
 * exported, and cannot allocate, trim or be exported itself. Free everything here, and close this pool, before the
 * owner frees the blocks and closes its pool. The driver does not check that; work that still runs here then is a
 * fault that costs the process its device.
 */
export class ImportedPool extends StreamOrderedPool {
  /** the imported blocks by address, each with the driver's bytes as text */
  private readonly imported = new Map<number, string>()

  private constructor(
    clocks: Clocks,
    defaultStream: Stream,
    protected readonly handle: number,
    private readonly received: ReceivedDescriptor,
  ) {
    super(clocks, defaultStream)
  }

  /**
   * Opens the pool that another process shares at `path`.
   * @internal
   */
  static async open(clocks: Clocks, stream: Stream, path: string, options: PassOptions): Promise<ImportedPool> {
    checkShare('importPool', path, options)
    const { context } = clocks
    const received = await receiveDescriptor(path, 'pool', options)
    return received.use(descriptor => {
      const driver = context.activate()
      let handle: number
      try {
        handle = driver.cuMemPoolImportFromShareableHandle(descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      } catch (error) {
        throw asGone(error, 'importPool')
      }
      const pool = new ImportedPool(clocks, stream, handle, received)
      try {
        // Each process has access rights of its own.
        if (pool.access(pool) === 'none') pool.setAccess(pool, 'readWrite')
      } catch (error) {
        context.discard(() => relaxed(driver, () => driver.cuMemPoolDestroy(handle)))
        throw error
      }
      return pool
    })
  }

  /**
   * A buffer over a block that the owner exported by `exportPointer`, for use and free on `stream` (the device's
   * default stream). Its free ends this buffer only, not the owner's. Throws TypeError or RangeError for other bytes.
   * Throws PoolError when the block is of another pool, is imported already, or is gone.
   */
  importBuffer(bytes: Uint8Array, stream: Stream = this.defaultStream): DeviceBuffer {
    this.checkOpen('importBuffer')
    this.checkStream('importBuffer', stream)
    const { driverBytes, poolId, byteLength, offset } = decodePointer(bytes)
    if (poolId !== this.received.announcement.id)
      throw new PoolError('importBuffer: the block is of another pool; import it there')
    const text = Buffer.from(driverBytes).toString('latin1')
    for (const known of this.imported.values()) if (known === text) throw twice()
    let ptr: number
    try {
      ptr = this.context.activate().cuMemPoolImportPointer(this.handle, driverBytes)
    } catch (error) {
      throw asGone(error, 'importBuffer')
    }
    if (this.imported.has(ptr)) throw twice()
    this.imported.set(ptr, text)
    return this.adopt(ptr, offset, byteLength, stream)
  }

  /**
   * Waits for pending work, frees live buffers, and closes the pool here, so that its owner may close it. Returns how
   * many buffers it freed.
   */
  override close(): CloseReport {
    const report = super.close()
    this.received.close()
    return report
  }

  /** Always throws PoolError: the process that made the pool allocates blocks. */
  override allocate(): never {
    throw this.refusal('allocate', 'allocate in the process that made it, and import the block here by importBuffer')
  }

  /** Always throws PoolError, like `allocate`. */
  override tryAllocate(): never {
    throw this.refusal('tryAllocate', 'allocate in the process that made it, and import the block here by importBuffer')
  }

  /** Always throws PoolError: the memory is the other process's. */
  trimTo(_keepBytes: number): never {
    throw this.refusal('trimTo', 'trim in the process that made it')
  }

  /** Always throws PoolError: only the process that made the pool can export it. */
  exportTo(_path: string, _options?: PassOptions): never {
    throw this.refusal('exportTo', 'export it from the process that made it')
  }

  /** Always throws PoolError, like `exportTo`. */
  exportPointer(_buffer: DeviceBuffer | DeviceArray): never {
    throw this.refusal('exportPointer', 'export the block from the process that made it')
  }

  /** Never called, because `allocate` throws. */
  protected obtain(): never {
    throw this.refusal('allocate', 'import blocks')
  }

  protected override giveBack(ptr: number, stream: Stream): void {
    super.giveBack(ptr, stream)
    this.imported.delete(ptr)
  }

  private refusal(call: string, remedy: string): PoolError {
    return new PoolError(`${call}: this pool is another process's; ${remedy}`)
  }
}

function twice(): PoolError {
  return new PoolError('importBuffer: the block is imported already, and the driver does not count; use that buffer')
}
