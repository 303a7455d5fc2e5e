// The folder of a world of ranks, as one rank sees it. Its files are
// - `maker`: the process that made the id.
// - `rank-R`: the journal of a rank.
// - `batch-N-R`: the data of rank R for the N-th batch of collectives.
// - `message-F-T-N`: the N-th message from rank F to rank T, until T has received it.
//
// A file appears whole, by renaming. A rank removes its file of a batch once all ranks have come to the next batch.
// The last rank that leaves removes the folder; ranks whose process has ended count as gone.

import * as fs from 'node:fs'
import { join } from 'node:path'
import { Journal, type Leaving, type Member } from './journal.js'
import { isRunning } from './processes.js'
import { isMakerRunning } from './unique-id.js'

/** Data of a rank: the bytes of each part, and words for it that other ranks compare. */
export interface Packet {
  readonly texts: readonly string[]
  readonly parts: readonly Uint8Array[]
}

/** One rank in the folder of its world. */
export class World {
  /** by rank */
  readonly journals: readonly Journal[]

  constructor(
    readonly folder: string,
    readonly rank: number,
    readonly ranks: number,
  ) {
    this.journals = Array.from({ length: ranks }, (_, each) => new Journal(folder, each))
  }

  /** Takes part from now on; false if another rank has the number. Throws ENOENT if the folder is gone. */
  join(member: Member): boolean {
    return this.own.begin(member)
  }

  get own(): Journal {
    return this.journals[this.rank]
  }

  /** Whether all ranks have come. */
  get isComplete(): boolean {
    return this.journals.every(journal => journal.member !== null || journal.refresh().member !== null)
  }

  /** Names a rank that was aborted, or whose process has ended; null while all are well. */
  lost(): string | null {
    for (const [rank, journal] of this.journals.entries()) {
      const { left, member } = journal.refresh()
      if (left === 'aborted' && rank !== this.rank) return `rank ${rank} was aborted`
      if (left === '' && member !== null && !isRunning(member)) return `the process of rank ${rank} has ended`
    }
    return this.isComplete || isMakerRunning(this.folder) ? null : 'the process that made the id has ended'
  }

  /** Gives to a batch of collectives. */
  contribute(batch: number, packet: Packet): void {
    this.write(`batch-${batch}-${this.rank}`, packet)
  }

  hasContribution(batch: number, rank: number): boolean {
    return fs.existsSync(join(this.folder, `batch-${batch}-${rank}`))
  }

  contribution(batch: number, rank: number): Packet {
    return this.read(`batch-${batch}-${rank}`)
  }

  /** Removes what this rank gave to a batch that no rank needs any more. */
  forget(batch: number): void {
    fs.rmSync(join(this.folder, `batch-${batch}-${this.rank}`), { force: true })
  }

  /** Sends a message to `peer`. */
  send(peer: number, number: number, packet: Packet): void {
    this.write(`message-${this.rank}-${peer}-${number}`, packet)
  }

  /** Whether a message lies in the folder: it was sent and not yet received. */
  hasMessage(from: number, to: number, number: number): boolean {
    return fs.existsSync(join(this.folder, `message-${from}-${to}-${number}`))
  }

  message(from: number, number: number): Packet {
    return this.read(`message-${from}-${this.rank}-${number}`)
  }

  /** Says that a message was received. */
  removeMessage(from: number, number: number): void {
    fs.rmSync(join(this.folder, `message-${from}-${this.rank}-${number}`))
  }

  /** Leaves, and removes the folder if no other rank takes part any more. */
  leave(how: Leaving): void {
    if (!fs.existsSync(this.folder)) return
    this.own.appendEnd(how)
    const hasOthers = this.journals.some(journal => {
      const { left, member } = journal.refresh()
      return left === '' && member !== null && isRunning(member)
    })
    if (!hasOthers) fs.rmSync(this.folder, { recursive: true, force: true })
  }

  private write(name: string, { texts, parts }: Packet): void {
    const head = JSON.stringify({ texts, sizes: parts.map(part => part.byteLength) })
    const temporary = join(this.folder, `new-${this.rank}`)
    fs.writeFileSync(temporary, Buffer.concat([Buffer.from(`${head}\n`), ...parts]), { mode: 0o600 })
    fs.renameSync(temporary, join(this.folder, name))
  }

  private read(name: string): Packet {
    const bytes = fs.readFileSync(join(this.folder, name))
    let at = bytes.indexOf('\n') + 1
    const { texts, sizes } = JSON.parse(bytes.toString('utf8', 0, at)) as { texts: string[]; sizes: number[] }
    const parts = sizes.map(size => {
      at += size
      return bytes.subarray(at - size, at)
    })
    return { texts, parts }
  }
}
