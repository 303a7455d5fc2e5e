// The regions that a client has attached. If its keeper goes away, the client offers them to the next keeper. A keeper
// with the state of the first only counts the client as a reader. A new keeper gets the memory, too.

import { KeepError } from '../base/errors.js'
import { sealedFile } from '../libraries/sealed-memory.js'
import { closeDescriptor, duplicateDescriptor } from '../libraries/system-calls.js'
import { MOST_DESCRIPTORS } from '../libraries/unix-socket.js'
import type { Connection, RequestOptions } from './connection.js'
import { ANSWERS, type Requests } from './messages.js'
import type { Facts, KeepEvent, PieceOf } from './region.js'

/** The memory of a region: new descriptors of its pieces, which are closed, and the table of its arrays. */
export type Source = () => { readonly pieces: readonly PieceOf[]; readonly directory: Uint8Array }

/** Once for each time that a region was attached. */
interface Attachment {
  readonly facts: Facts
  /** its keeper counts it */
  connection: Connection
  /** null until the region is mapped */
  source: Source | null
  isRetired: boolean
}

const NOTHING: ReturnType<Source> = { pieces: [], directory: new Uint8Array(0) }

export class Attachments {
  private readonly all = new Set<Attachment>()

  get size(): number {
    return this.all.size
  }

  add(facts: Facts, connection: Connection): void {
    this.all.add({ facts, connection, source: null, isRetired: false })
  }

  /** Names the memory of the attachment that was added last. Whether its keeper still counts it. */
  hold(generation: number, source: Source): boolean {
    const attachment = this.find(generation, null)
    if (attachment !== undefined) attachment.source = source
    return attachment === undefined || attachment.connection.isOpen
  }

  /** Forgets an attachment. Returns the connection to the keeper that counts it. */
  take(generation: number, source: Source | null): Connection | undefined {
    const attachment = this.find(generation, source)
    if (attachment !== undefined) this.all.delete(attachment)
    return attachment?.connection
  }

  /** Notes that the keeper has dropped a generation: retired memory never becomes ready again. */
  note({ kind, generation }: KeepEvent): void {
    for (const each of this.all) {
      if (each.facts.generation !== generation) continue
      if (kind === 'retired') each.isRetired = true
      else if (kind === 'gone' || kind === 'lost') this.all.delete(each)
    }
  }

  /** Offers all while the connection lasts. Memory that the keeper or the driver refuses stays with this process. */
  async offerTo(connection: Connection, options: RequestOptions): Promise<void> {
    for (const each of [...this.all]) {
      if (!this.all.has(each) || each.connection === connection) continue
      each.connection = connection
      const { facts, isRetired } = each
      // It may be released while the keeper is asked.
      const source = each.source && (() => (this.all.has(each) ? each.source!() : NOTHING))
      await offer(connection, [{ ...facts, isRetired, source }], options).catch(() => {})
      if (!connection.isOpen) return
    }
  }

  private find(generation: number, source: Source | null): Attachment | undefined {
    return [...this.all].findLast(each => each.facts.generation === generation && each.source === source)
  }
}

export interface Offer extends Facts {
  readonly isRetired: boolean
  /** null: its memory cannot be exported */
  readonly source: Source | null
}

/** Offers generations, all or none. Those that the keeper does not have are sent. */
export async function offer(connection: Connection, set: readonly Offer[], options: RequestOptions): Promise<void> {
  const facts = ({ generation, name, version, device, labels, bytes, isRetired: retired }: Offer) => {
    return { generation, name, version, device, labels, bytes, retired }
  }
  const question: Requests['offer'] = { set: set.map(each => ({ ...facts(each), sizes: [], directory: false })) }
  const answer = await connection.request('offer', question, options)
  const { wanted } = ANSWERS.offer(answer.body, 'the answer to offer')
  const descriptors: number[] = []
  try {
    const parts: Requests['offer']['set'][number][] = []
    for (const each of set) {
      if (!wanted.includes(each.generation) || each.source === null) continue
      const { pieces, directory } = each.source()
      descriptors.push(...pieces.map(piece => piece.descriptor))
      // The directory comes before the pieces.
      if (directory.length > 0) descriptors.splice(-pieces.length, 0, sealedFile('cuda-mempool-directory', directory))
      parts.push({ ...facts(each), sizes: pieces.map(piece => piece.bytes), directory: directory.length > 0 })
    }
    if (descriptors.length > MOST_DESCRIPTORS)
      throw new KeepError(`too many pieces for the next keeper: ${descriptors.length} of ${MOST_DESCRIPTORS}`, 'gone')
    if (parts.length > 0) await connection.request('offer', { set: parts }, { ...options, descriptors })
  } finally {
    descriptors.forEach(closeDescriptor)
  }
}

/** New descriptors of the same memory, which the caller closes. When it throws, it has closed them. */
export function copiesOf(pieces: readonly PieceOf[]): PieceOf[] {
  return piecesFrom(pieces, ({ descriptor }) => duplicateDescriptor(descriptor))
}

/** A piece with a new descriptor for each part. When `descriptorOf` throws, those before it are closed. */
export function piecesFrom<P extends { readonly bytes: number }>(
  parts: readonly P[],
  descriptorOf: (part: P) => number,
): PieceOf[] {
  const pieces: PieceOf[] = []
  try {
    for (const part of parts) pieces.push({ descriptor: descriptorOf(part), bytes: part.bytes })
    return pieces
  } catch (error) {
    closePieces(pieces)
    throw error
  }
}

export function closePieces(pieces: readonly PieceOf[]): void {
  for (const { descriptor } of pieces) closeDescriptor(descriptor)
}
