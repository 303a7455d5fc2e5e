import { formatBytes } from '../core/base/bytes.js'
import { disposeOf } from '../core/base/disposal.js'
import { CudaError, KeepError } from '../core/base/errors.js'
import { showAsText } from '../core/base/readable.js'
import { printable, shownName } from '../core/base/shown-text.js'
import type { Device } from '../core/device/device.js'
import { RESULT } from '../core/driver/constants.js'
import { closePieces, copiesOf, type Source } from '../core/keeper/attachments.js'
import type { KeeperClient } from '../core/keeper/client.js'
import type { Found } from '../core/keeper/receiving.js'
import type { PieceOf } from '../core/keeper/region.js'
import { bytesIn } from '../core/keeper/state/generation.js'
import { byteLengthOf, DeviceArray, type TypedArrayConstructor, type TypedArrayOf } from '../core/pool/array.js'
import { Directory, type KeptArray } from './directory.js'
import { type Filling, mapped } from './filling.js'
import type { RegionBuffer } from './region-buffer.js'

/** A region that is whole: device memory that outlives this process, read-only in all processes. */
export class Region implements Disposable {
  /** for the next keeper, if this one goes away; nothing after the device was closed */
  private readonly source: Source = () => ({
    pieces: this.closed ? [] : copiesOf(this.pieces),
    directory: this.directory.encoded(),
  })
  /** whether `close` was called */
  private isReleased = false

  private constructor(
    private readonly client: KeeperClient,
    /** as its writer named it */
    readonly name: string,
    /** the version of the contents, as their writer named it */
    readonly version: string,
    /** counts up with each commit of the keeper */
    readonly generation: number,
    /** whether this call has filled it */
    readonly created: boolean,
    /** the memory; closing the region unmaps it */
    readonly buffer: RegionBuffer,
    private readonly directory: Directory,
    /** stay open until the region is closed: the driver exports no memory that was imported */
    private readonly pieces: readonly PieceOf[],
  ) {
    client.hold(generation, this.source)
  }

  /**
   * The region that this process has committed. The descriptors of its pieces are the region's.
   * @internal
   */
  static filled(client: KeeperClient, filling: Filling, pieces: readonly PieceOf[]): Region {
    const { name, version, generation, directory } = filling
    return new Region(client, name, version, generation, true, filling.sealed(), directory, pieces)
  }

  /**
   * Maps what the keeper has passed. Throws KeepError 'lost' if the memory is gone, after closing the descriptors.
   * @internal
   */
  static attached(
    device: Device,
    client: KeeperClient,
    name: string,
    found: Extract<Found, { kind: 'ready' }>,
    granuleBytes: number,
  ): Region {
    const { generation, version, bytes, pieces } = found
    try {
      checkPieces(found, name, granuleBytes)
      const directory = Directory.decoded(found.directory, bytes, name)
      const buffer = mapped(device, name, bytes, granuleBytes, pieces)[1]
      buffer.seal()
      return new Region(client, name, version, generation, false, buffer, directory, pieces)
    } catch (error) {
      closePieces(pieces)
      const isLost = error instanceof CudaError && error.result === RESULT.CUDA_ERROR_INVALID_VALUE
      const told = isLost ? client.lost(generation) : client.release(generation)
      told.catch(() => {}) // the end of the connection tells the keeper, too
      if (!isLost) throw error
      throw new KeepError(
        `the memory of region ${shownName(name)} is gone: the device was reset, or is another one; have it filled anew (${error.message})`,
        'lost',
        { cause: error },
      )
    }
  }

  /** The named arrays, in the order in which they were filled. */
  get arrays(): readonly KeptArray[] {
    return this.directory.arrays
  }

  /**
   * The array of that name, read-only. Throws RangeError for an unknown name, TypeError for another type than it has,
   * and PoolError after the region was closed.
   */
  array<C extends TypedArrayConstructor>(name: string, type: C): DeviceArray<TypedArrayOf<C>> {
    byteLengthOf(type, 1, 'array')
    const { byteOffset, length } = this.directory.find(name, type.name)
    return DeviceArray.over(this.buffer, type, byteOffset, length, 'array')
  }

  /** True after `close`, and after its device was closed. */
  get closed(): boolean {
    return this.buffer.freed
  }

  /**
   * Unmaps the region here once the work submitted until now is complete; the host does not wait. The keeper keeps it.
   * A second close does nothing.
   */
  close(): void {
    if (this.isReleased) return
    this.isReleased = true
    this.buffer.unmap()
    closePieces(this.pieces)
    this.client.release(this.generation, this.source).catch(() => {}) // the end of the connection tells the keeper, too
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people, such as `Region { weights 'v1', 8 GiB, open }`; console.log shows it. */
  toString(): string {
    const state = this.closed ? 'closed' : `${formatBytes(this.buffer.byteLength)}, open`
    return `Region { ${printable(this.name)} ${shownName(this.version)}, ${state} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { name, version, generation, created, closed } = this
    return { name, version, generation, created, closed, arrays: this.arrays }
  }
}

showAsText(Region)

/** Throws KeepError 'protocol' unless the pieces are whole granules, and together the memory of the region. */
function checkPieces({ bytes, pieces }: Extract<Found, { kind: 'ready' }>, name: string, granuleBytes: number): void {
  const memoryBytes = Math.ceil(bytes / granuleBytes) * granuleBytes
  const areWhole = pieces.every(piece => piece.bytes % granuleBytes === 0)
  if (areWhole && bytesIn(pieces) === memoryBytes) return
  const fact = `the pieces of region ${shownName(name)} are not its ${formatBytes(bytes)} in whole granules`
  throw new KeepError(`${fact}; drop it, and have it filled anew`, 'protocol')
}
