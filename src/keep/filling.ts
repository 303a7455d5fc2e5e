// A region that is being filled. Its memory is this process's alone until the commit: if the process ends before, the
// memory goes with it, and the keeper never had a half-filled region.

import { formatBytes } from '../core/base/bytes.js'
import { KeepError, OutOfMemoryError, PoolError } from '../core/base/errors.js'
import { showAsText } from '../core/base/readable.js'
import { printable, shownName } from '../core/base/shown-text.js'
import { isDriverError } from '../core/base/thrown.js'
import type { Device } from '../core/device/device.js'
import type { KeeperClient } from '../core/keeper/client.js'
import type { PieceOf } from '../core/keeper/region.js'
import type { ArenaPool } from '../core/pool/arena/arena-pool.js'
import { DeviceArray, type TypedArray, type TypedArrayConstructor, type TypedArrayOf } from '../core/pool/array.js'
import { GrowableAllocation } from '../core/pool/mapped/growable-allocation.js'
import { Directory } from './directory.js'
import { KeptRange } from './kept-range.js'
import { RegionBuffer } from './region-buffer.js'

/** A region that this process fills, and no other process sees yet. Disposed without a commit, it is abandoned. */
export class Filling implements Disposable {
  /** Hands out the region's memory, from its start on. `place` and `put` take theirs from it, under a name. */
  readonly arena: ArenaPool
  /** @internal */
  readonly directory = new Directory()
  private readonly bytes: number
  private state: 'open' | 'being committed' | 'committed' | 'abandoned' = 'open'

  private constructor(
    private readonly client: KeeperClient,
    /** the region's name */
    readonly name: string,
    /** the version of the contents */
    readonly version: string,
    /** @internal */
    readonly generation: number,
    /** @internal */
    readonly buffer: RegionBuffer,
    private readonly range: KeptRange,
    device: Device,
  ) {
    this.arena = device.createArenaPool({ region: buffer })
    this.bytes = buffer.byteLength
  }

  /**
   * Makes the memory of a region. Throws OutOfMemoryError if the device has no room for it.
   * @internal
   */
  static open(
    device: Device,
    client: KeeperClient,
    region: { readonly name: string; readonly version: string; readonly generation: number },
    byteLength: number,
    granuleBytes: number,
  ): Filling {
    const { name, version, generation } = region
    const [range, buffer] = mapped(device, name, byteLength, granuleBytes, null)
    return new Filling(client, name, version, generation, buffer, range, device)
  }

  /** Copies `source` to an array of that name in the region. Throws KeepError 'size' if it does not fit. */
  put<T extends TypedArray>(name: string, source: T): ReturnType<typeof this.arena.upload<T>> {
    return this.named('put', name, () => DeviceArray.upload(this.arena, source, undefined, 'put'))
  }

  /**
   * An array of that name for `count` elements in the region, to be filled by copies or kernels. Throws KeepError
   * 'size' if it does not fit.
   */
  place<C extends TypedArrayConstructor>(name: string, type: C, count: number): DeviceArray<TypedArrayOf<C>> {
    return this.named('place', name, () => DeviceArray.allocate(this.arena, type, count, undefined, 'place'))
  }

  /** Gives the memory back, and leaves the region to the next that fills it; nothing once it is being committed. */
  [Symbol.dispose](): void {
    if (this.state === 'open') this.abandon()
  }

  /**
   * The same, also for a commit that has failed.
   * @internal
   */
  abandon(): void {
    if (this.state === 'committed' || this.state === 'abandoned') return
    this.state = 'abandoned'
    try {
      this.arena.close()
    } catch (error) {
      if (!isDriverError(error)) throw error // the arena has no memory of its own, and the device closes it again
    } finally {
      this.buffer.unmap()
      this.client.abandon(this.generation).catch(() => {}) // the end of the connection tells the keeper, too
    }
  }

  /** One line for people, such as `Filling { weights 'v1', 8 GiB, open }`; console.log shows it. */
  toString(): string {
    return `Filling { ${printable(this.name)} ${shownName(this.version)}, ${formatBytes(this.bytes)}, ${this.state} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { name, version, generation, state, bytes } = this
    return { name, version, generation, state, bytes, arrays: this.directory.arrays }
  }

  /**
   * Throws PoolError, in the name of `call`, for a region that was committed or abandoned.
   * @internal
   */
  checkOpen(call: string): void {
    if (this.state === 'open') return
    const fact = this.state === 'being committed' ? `is ${this.state}; await that` : `was ${this.state} already`
    const remedy = this.state === 'being committed' ? '' : '; begin it again'
    throw new PoolError(`${call}: region ${shownName(this.name)} ${fact}${remedy}`)
  }

  /**
   * Ends the filling: nothing is added from now on.
   * @internal
   */
  end(): void {
    this.state = 'being committed'
  }

  /**
   * The parts of the commit. All work on the memory must be complete, and it is read-only from now on. The caller
   * closes the descriptors.
   * @internal
   */
  finish(): { generation: number; pieces: PieceOf[]; directory: Uint8Array; bytes: number } {
    this.arena.close()
    this.range.protect()
    const { generation, directory, bytes } = this
    const pieces = this.range.exported()
    return { generation, pieces, directory: directory.encoded(), bytes }
  }

  /**
   * After the commit: the memory is the region's.
   * @internal
   */
  sealed(): RegionBuffer {
    this.state = 'committed'
    this.buffer.seal()
    return this.buffer
  }

  private named<A extends DeviceArray>(call: string, name: string, make: () => A): A {
    this.checkOpen(call)
    this.directory.checkNew(call, name)
    const array = this.fitting(call, name, make)
    const { type, length } = array.toJSON() as { readonly type: string; readonly length: number }
    const byteOffset = array.addressFor('put') - this.range.base
    this.directory.add({ name, type, byteOffset, length })
    return array
  }

  private fitting<A>(call: string, name: string, make: () => A): A {
    try {
      return make()
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
      const region = `${formatBytes(this.bytes)} of region ${shownName(this.name)}`
      throw new KeepError(`${call}: ${shownName(name)} does not fit into the ${region}; ask for more bytes`, 'size', {
        cause: error,
      })
    }
  }
}

showAsText(Filling)

/**
 * Memory of a region: new, or of the pieces that the keeper passed. Throws OutOfMemoryError or CudaError, and has then
 * given everything back.
 */
export function mapped(
  device: Device,
  name: string,
  byteLength: number,
  granuleBytes: number,
  kept: readonly PieceOf[] | null,
): [range: KeptRange, buffer: RegionBuffer] {
  const memoryBytes = Math.ceil(byteLength / granuleBytes) * granuleBytes
  const range = new KeptRange(device.context, granuleBytes, memoryBytes, kept)
  const allocation = new GrowableAllocation(device.clocks, device.defaultStream, range)
  try {
    allocation.grow(byteLength)
  } catch (error) {
    allocation.discard()
    throw error
  }
  return [range, device.keepMapped(new RegionBuffer(allocation, name))]
}
