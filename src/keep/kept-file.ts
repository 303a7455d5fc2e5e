// A file that outlives its process, in memory of the host: a tokenizer, a vocabulary, a model that another library
// reads. The keeper holds it as a region with one piece.

import { fstatSync } from 'node:fs'
import { totalmem } from 'node:os'
import { formatBytes } from '../core/base/bytes.js'
import { disposeOf } from '../core/base/disposal.js'
import { KeepError, PoolError } from '../core/base/errors.js'
import { showAsText } from '../core/base/readable.js'
import { printable, shownName } from '../core/base/shown-text.js'
import { closePieces, copiesOf, type Source } from '../core/keeper/attachments.js'
import type { KeeperClient } from '../core/keeper/client.js'
import type { Found } from '../core/keeper/receiving.js'
import { HOST, type KeptDevice, type PieceOf } from '../core/keeper/region.js'
import { memoryFile, seal } from '../core/libraries/sealed-memory.js'
import { closeDescriptor } from '../core/libraries/system-calls.js'

const NO_ARRAYS = new Uint8Array(0)

/** The place of kept files, with a quota of its own. */
export const hostMemory = (): KeptDevice => ({ uuid: HOST, totalBytes: totalmem(), simulated: false })

/** A file in memory of the host that outlives this process. No process can change it. */
export class KeptFile implements Disposable {
  private isClosed = false
  /** for the next keeper, if this one goes away */
  private readonly source: Source = () => ({ pieces: copiesOf([this.piece]), directory: NO_ARRAYS })

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
    private readonly piece: PieceOf,
  ) {
    client.hold(generation, this.source)
  }

  /**
   * Of the memory that the keeper has passed. When it throws, it has closed that.
   * @internal
   */
  static found(client: KeeperClient, name: string, found: Extract<Found, { kind: 'ready' }>): KeptFile {
    const { generation, version, bytes, pieces } = found
    const [piece] = pieces
    if (pieces.length === 1 && piece.bytes === bytes && fstatSync(piece.descriptor).size === bytes) {
      return new KeptFile(client, name, version, generation, false, piece)
    }
    closePieces(pieces)
    client.release(generation).catch(() => {}) // the end of the connection tells the keeper, too
    throw new KeepError(`region ${shownName(name)} is not a file; use another name for the file`, 'protocol')
  }

  /**
   * Has a leased file written by `fill`, and commits it. When it rejects, the next in line fills it.
   * @internal
   */
  static async filled(
    client: KeeperClient,
    { name, version, generation }: { readonly name: string; readonly version: string; readonly generation: number },
    fill: (path: string) => void | Promise<void>,
  ): Promise<KeptFile> {
    let descriptor: number | null = null
    try {
      descriptor = memoryFile('cuda-mempool-file')
      await fill(pathOf(descriptor))
      seal(descriptor)
      const bytes = fstatSync(descriptor).size
      if (bytes === 0)
        throw new PoolError(`file: fill has written nothing to the path that it got for ${shownName(name)}`)
      const piece = { descriptor, bytes }
      await client.commit([{ generation, pieces: [piece], directory: NO_ARRAYS, bytes }])
      return new KeptFile(client, name, version, generation, true, piece)
    } catch (error) {
      if (descriptor !== null) closeDescriptor(descriptor)
      client.abandon(generation).catch(() => {}) // the first error says more
      throw error
    }
  }

  /** The path of the file for this process and its children, until it is closed. */
  get path(): string {
    if (!this.isClosed) return pathOf(this.piece.descriptor)
    throw new PoolError(`path: the file ${shownName(this.name)} was closed; open it again`)
  }

  /** Its length. */
  get byteLength(): number {
    return this.piece.bytes
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.isClosed
  }

  /** Closes the file here; the keeper keeps it. A second close does nothing. */
  close(): void {
    if (this.isClosed) return
    this.isClosed = true
    closeDescriptor(this.piece.descriptor)
    this.client.release(this.generation, this.source).catch(() => {}) // the end of the connection tells the keeper, too
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people, such as `KeptFile { tokenizer 'v1', 2 MiB, open }`; console.log shows it. */
  toString(): string {
    const state = this.closed ? 'closed' : 'open'
    return `KeptFile { ${printable(this.name)} ${shownName(this.version)}, ${formatBytes(this.byteLength)}, ${state} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { name, version, generation, created, closed, byteLength } = this
    return { name, version, generation, created, closed, byteLength }
  }
}

showAsText(KeptFile)

function pathOf(descriptor: number): string {
  return `/proc/${process.pid}/fd/${descriptor}`
}
