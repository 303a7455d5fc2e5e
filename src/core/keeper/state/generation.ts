// A generation of a name: memory that a writer fills, and that never changes after its commit.

import type { IfFull, KeepEvent, KeptDevice, PieceOf, RegionInfo, RegionState } from '../region.js'

/** A process that has a connection. */
export interface Client {
  /** 0 for a process of another PID namespace */
  readonly pid: number
  /** false after its end */
  isOpen: boolean
  /** requests that wait */
  waiting: number
}

/** The request of a client. */
export interface Wanted {
  readonly name: string
  /** undefined: any */
  readonly version: string | undefined
  readonly purpose: 'read' | 'fill'
  readonly bytes: number
  readonly device: KeptDevice
  readonly labels: Readonly<Record<string, string>>
  readonly ifFull: IfFull
}

/** A generation to commit. */
export interface Filled {
  readonly generation: number
  /** length of its contents */
  readonly bytes: number
  /** how many were sent */
  readonly pieces: number
  /** descriptor of the names and places of its arrays; null without arrays */
  readonly directory: number | null
}

export class Generation {
  state: Exclude<RegionState, 'unfinished'> = 'filling'
  /** whether the commit was read: the end of the writer no longer changes anything */
  isSealed = false
  /** whether a keeper before had dropped it: it is never ready again */
  isRetired = false
  pieces: PieceOf[] = []
  /** descriptor of the names and places of its arrays; null before the commit, or without arrays */
  directory: number | null = null
  /** length of its contents */
  contentBytes = 0
  /** how often each client has it attached */
  readonly readers = new Map<Client, number>()
  lastUse: number

  constructor(
    readonly number: number,
    readonly name: string,
    readonly version: string,
    readonly device: KeptDevice,
    readonly labels: Readonly<Record<string, string>>,
    /** the size that the writer asked for */
    readonly leasedBytes: number,
    readonly writer: Client,
    readonly created: number,
  ) {
    this.lastUse = created
  }

  /** Memory of the device. */
  get bytes(): number {
    const bytes = bytesIn(this.pieces)
    return this.isSealed ? bytes : Math.max(bytes, this.leasedBytes)
  }

  get isLeased(): boolean {
    return this.state === 'filling' || this.state === 'committing'
  }

  get descriptors(): number[] {
    const directory = this.directory === null ? [] : [this.directory]
    return [...directory, ...this.pieces.map(piece => piece.descriptor)]
  }

  info(): RegionInfo {
    const { name, version, number: generation, state, bytes, labels, lastUse, created } = this
    const readers = [...new Set([...this.readers.keys()].map(({ pid }) => pid))]
    const [device, writer] = [this.device.uuid, this.writer.pid]
    return { name, version, generation, state, bytes, device, labels, readers, writer, lastUse, created }
  }

  event(kind: KeepEvent['kind']): KeepEvent {
    return { kind, name: this.name, version: this.version, generation: this.number }
  }
}

export function bytesIn(pieces: readonly PieceOf[]): number {
  return pieces.reduce((sum, piece) => sum + piece.bytes, 0)
}
