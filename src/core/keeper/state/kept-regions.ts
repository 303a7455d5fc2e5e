// The keeper's state, without sockets: the generations, their writers and readers, the clients that wait, and the
// change that each request makes. A name has at most one generation that is ready, and one that is leased. Retired
// generations stay while they have readers. A `find` is answered as soon as the state of its name allows.

import { KeepError } from '../../base/errors.js'
import { shownName } from '../../base/shown-text.js'
import type { KeepEvent, KeptDevice, PieceOf } from '../region.js'
import { bytesIn, type Client, type Filled, Generation, type Wanted } from './generation.js'
import { type Limits, Usage } from './quota.js'
import { checkFilled, nothingToDrop, notLeased, notThere, otherDevice, outOfOrder, tooManyWait } from './refusals.js'
import { Unfinished } from './unfinished.js'

/** The answer to a `find`. */
export type Outcome =
  | { readonly kind: 'lease' | 'ready'; readonly generation: Generation }
  | { readonly kind: 'refused'; readonly error: KeepError }

/** The effects of a change outside of the state. */
export interface Effects {
  answer(client: Client, request: number, outcome: Outcome): void
  close(descriptors: readonly number[]): void
  tell(kind: KeepEvent['kind'], generation: Generation): void
}

export interface Waiter {
  readonly client: Client
  readonly request: number
  readonly wanted: Wanted
}

/** A name that is not absent. */
interface Kept {
  ready: Generation | null
  lease: Generation | null
  queue: Waiter[]
}

/** Requests of a client that wait: each is a promise of a program. */
export const MOST_WAITING = 1000

export class KeptRegions {
  readonly generations = new Map<number, Generation>()
  readonly unfinished: Unfinished
  private readonly names = new Map<string, Kept>()
  private readonly usage: Usage

  /** `next` is the number of the first generation: higher than any that a keeper before gave to these clients. */
  constructor(
    limits: Limits,
    private readonly effects: Effects,
    public next: number,
    readonly now: () => number = Date.now,
    /** the keeper's, for commands in messages, if it is not the usual one */
    private readonly socket: string | null = null,
  ) {
    this.usage = new Usage(limits, socket)
    this.unfinished = new Unfinished(limits.maxRegions)
  }

  /** Looks for a region, or asks to fill it. The answer comes at once, unless the client has to wait. */
  find(client: Client, request: number, wanted: Wanted): 'answered' | 'queued' {
    const kept = this.names.get(wanted.name) ?? { ready: null, lease: null, queue: [] }
    let outcome = this.outcomeOf(kept, client, wanted)
    if (outcome === null && client.waiting >= MOST_WAITING) {
      outcome = refused(tooManyWait(wanted, MOST_WAITING))
    }
    if (outcome !== null) {
      this.effects.answer(client, request, outcome)
      return 'answered'
    }
    client.waiting++
    kept.queue.push({ client, request, wanted })
    return 'queued'
  }

  /** Adds a generation of a keeper before. */
  restore(generation: Generation): void {
    const { name, device, bytes, descriptors, state } = generation
    const kept = this.keptOf(name)
    if (state === 'ready') kept.ready = generation
    else if (generation.isLeased) kept.lease ??= generation
    this.generations.set(generation.number, generation)
    this.usage.add(device, { bytes, descriptors: descriptors.length, regions: 1 })
    this.tidy(name)
  }

  /** The requests that wait, in their order for each name. */
  waiters(): Waiter[] {
    return [...this.names.values()].flatMap(({ queue }) => queue)
  }

  /** Takes a request out of its queue, without an answer. */
  cancel(client: Client, request: number): void {
    for (const [name, kept] of this.names) {
      const waiter = kept.queue.find(each => each.client === client && each.request === request)
      if (waiter === undefined) continue
      kept.queue.splice(kept.queue.indexOf(waiter), 1)
      client.waiting--
      this.tidy(name)
    }
  }

  /** Adds pieces to a leased generation. Their descriptors belong to the keeper unless it throws. */
  addPieces(client: Client, number: number, first: number, pieces: readonly PieceOf[]): void {
    const generation = this.leaseOf(client, number)
    if (first !== generation.pieces.length) throw outOfOrder(generation)
    const { bytes } = generation
    const grown = [...generation.pieces, ...pieces]
    const more = Math.max(bytes, bytesIn(grown)) - bytes
    this.usage.checkPieces(generation.name, generation.device, more, pieces.length)
    generation.pieces = grown
    generation.state = 'committing'
    this.usage.add(generation.device, { bytes: more, descriptors: pieces.length })
  }

  /**
   * Notes that the commit of a set was read. From now on the end of the writer changes nothing; `publish` follows. The
   * directories belong to the keeper unless it throws.
   */
  seal(client: Client, set: readonly Filled[]): Generation[] {
    const generations = set.map(filled => this.leaseOf(client, filled.generation))
    for (const [index, generation] of generations.entries()) checkFilled(generation, set[index])
    if (new Set(generations).size < set.length) throw new KeepError('commit: a generation is named twice', 'protocol')
    const directories = set.filter(({ directory }) => directory !== null)
    this.usage.checkPieces(generations[0].name, generations[0].device, 0, directories.length)
    for (const [index, generation] of generations.entries()) {
      const { bytes } = generation
      generation.state = 'committing'
      generation.isSealed = true
      generation.directory = set[index].directory
      generation.contentBytes = set[index].bytes
      const descriptors = set[index].directory === null ? 0 : 1
      this.usage.add(generation.device, { bytes: generation.bytes - bytes, descriptors })
    }
    return generations
  }

  /** Makes a sealed set ready, all at once. Its writer has it attached. What is older than a ready one is retired. */
  publish(set: readonly Generation[]): void {
    for (const generation of set) {
      const kept = this.keptOf(generation.name)
      const old = kept.ready
      if (kept.lease === generation) kept.lease = null
      generation.lastUse = this.now()
      if (generation.writer.isOpen) this.attach(generation, generation.writer)
      if (generation.isRetired || (old !== null && old.number > generation.number)) this.retire(generation)
      else {
        kept.ready = generation
        generation.state = 'ready'
        this.unfinished.forget(generation.name)
        this.effects.tell('ready', generation)
        if (old !== null) this.retire(old)
      }
    }
    for (const { name } of set) this.advance(name)
  }

  /** Ends a sealed set that could not be stored. */
  refuse(set: readonly Generation[]): void {
    for (const generation of set) this.leaveUnfinished(generation)
  }

  /** Takes back `restore`; the descriptors stay open. */
  withdraw(generation: Generation): void {
    const { name, number, device, bytes, descriptors } = generation
    const kept = this.names.get(name)
    if (kept?.ready === generation) kept.ready = null
    if (kept?.lease === generation) kept.lease = null
    this.generations.delete(number)
    this.usage.add(device, { bytes: -bytes, descriptors: -descriptors.length, regions: -1 })
    this.tidy(name)
  }

  /** Throws KeepError unless a generation that a client offers may be kept. */
  checkOffer({ name, device, bytes, descriptors }: Generation): void {
    const { ready = null, lease = null } = this.names.get(name) ?? {}
    const home = ready ?? lease
    if (home !== null && home.device.uuid !== device.uuid) throw otherDevice(home, device, this.socket)
    if (this.usage.isTooMuch(bytes, device)) throw this.usage.refusal(name, bytes, device, this.idleOn(device))
    this.usage.checkPieces(name, device, 0, descriptors.length)
  }

  /** Notes that a client has it attached once more. */
  attach(generation: Generation, client: Client): void {
    generation.readers.set(client, (generation.readers.get(client) ?? 0) + 1)
    generation.lastUse = this.now()
  }

  /** Ends a lease without a commit. */
  abandon(client: Client, number: number): void {
    const generation = this.generations.get(number)
    if (generation?.writer === client) this.endLease(generation)
  }

  /** A reader has closed its region once. */
  release(client: Client, number: number): void {
    const generation = this.generations.get(number)
    const count = generation?.readers.get(client)
    if (generation === undefined || count === undefined) return
    if (count > 1) generation.readers.set(client, count - 1)
    else this.endReading(generation, client)
  }

  /** A client found that the memory went away with its device. */
  lose(number: number): void {
    const generation = this.generations.get(number)
    if (generation === undefined || generation.isLeased) return
    this.effects.tell('lost', generation)
    this.remove(generation)
  }

  /** A process has ended, or closed its connection. */
  end(client: Client): void {
    client.isOpen = false
    for (const [name, kept] of client.waiting > 0 ? [...this.names] : []) {
      kept.queue = kept.queue.filter(waiter => waiter.client !== client)
      this.tidy(name)
    }
    client.waiting = 0
    for (const generation of [...this.generations.values()]) {
      if (generation.readers.has(client)) this.endReading(generation, client)
      if (generation.writer === client) this.endLease(generation)
    }
  }

  /**
   * Drops the region of a name. Attached memory stays until its readers close it. With `force` the keeper closes its
   * descriptors at once, and ends the lease of a writer. Throws KeepError 'absent' if the name has no region to drop.
   */
  drop(name: string, force: boolean): void {
    const { ready = null, lease = null } = this.names.get(name) ?? {}
    const forced = force ? [...this.generations.values()].filter(each => each.name === name && each !== lease) : []
    const wasMarked = this.unfinished.forget(name)
    if (ready === null && forced.length === 0 && !wasMarked && (lease === null || !force)) {
      const others = [...this.generations.values()].filter(each => each.name === name)
      throw nothingToDrop(name, others, this.socket)
    }
    if (ready !== null) this.retire(ready)
    for (const each of forced) if (this.generations.has(each.number)) this.remove(each)
    if (force && lease !== null) this.endLease(lease)
  }

  /** Drops a region that is ready: it is gone, or with readers retired. */
  retire(generation: Generation): void {
    const kept = this.names.get(generation.name)
    if (kept?.ready === generation) kept.ready = null
    if (generation.readers.size === 0) this.remove(generation)
    else {
      generation.state = 'retired'
      this.effects.tell('retired', generation)
      this.tidy(generation.name)
    }
  }

  /** The answer for a client, or null if it has to wait. */
  private outcomeOf(kept: Kept, client: Client, wanted: Wanted): Outcome | null {
    const { ready, lease } = kept
    const home = ready ?? lease
    if (home !== null && home.device.uuid !== wanted.device.uuid)
      return refused(otherDevice(home, wanted.device, this.socket))
    if (ready !== null && isWanted(ready, wanted)) {
      this.attach(ready, client)
      return { kind: 'ready', generation: ready }
    }
    if (wanted.purpose === 'fill') return lease === null ? this.leased(kept, client, wanted) : null
    if (lease !== null && isWanted(lease, wanted)) return null
    return refused(notThere(wanted, ready, this.unfinished.of(wanted.name)))
  }

  private leased(kept: Kept, client: Client, wanted: Wanted): Outcome {
    const { name, version = '', device, labels, bytes } = wanted
    const error = this.makeRoom(kept, wanted)
    if (error !== null) return refused(error)
    const generation = new Generation(this.next++, name, version, device, labels, bytes, client, this.now())
    kept.lease = generation
    this.names.set(name, kept)
    this.generations.set(generation.number, generation)
    this.usage.add(device, { bytes, regions: 1 })
    this.effects.tell('leased', generation)
    return { kind: 'lease', generation }
  }

  /** Drops what `ifFull` allows, as little as suffices. The error if that is too little; then all stays. */
  private makeRoom({ ready }: Kept, { name, bytes, device, ifFull }: Wanted): KeepError | null {
    if (!this.usage.isTooMuch(bytes, device)) return null
    const idle = this.idleOn(device)
    const allowed =
      ifFull === 'fail' ? [] : idle.filter(each => (ifFull === 'replace' ? each === ready : isEvictable(each)))
    for (let count = 1; count <= allowed.length; count++) {
      if (this.usage.isTooMuch(bytes, device, allowed.slice(0, count))) continue
      for (const each of allowed.slice(0, count)) this.retire(each)
      return null
    }
    return this.usage.refusal(name, bytes, device, idle)
  }

  /** The regions without readers on a device, the longest unused first. */
  private idleOn({ uuid }: KeptDevice): Generation[] {
    return [...this.generations.values()]
      .filter(each => each.state === 'ready' && each.readers.size === 0 && each.device.uuid === uuid)
      .sort((a, b) => a.lastUse - b.lastUse)
  }

  /** Answers the requests for a name that need not wait any more: writers first, for readers wait for them. */
  private advance(name: string): void {
    for (const purpose of ['fill', 'read'] as const) {
      for (const waiter of this.names.get(name)?.queue.filter(({ wanted }) => wanted.purpose === purpose) ?? []) {
        const kept = this.names.get(name)!
        const outcome = this.outcomeOf(kept, waiter.client, waiter.wanted)
        if (outcome === null) continue
        kept.queue.splice(kept.queue.indexOf(waiter), 1)
        waiter.client.waiting--
        this.effects.answer(waiter.client, waiter.request, outcome)
      }
    }
    this.tidy(name)
  }

  private endReading(generation: Generation, client: Client): void {
    generation.readers.delete(client)
    generation.lastUse = this.now()
    if (generation.state === 'retired' && generation.readers.size === 0) this.remove(generation)
  }

  /** Ends a lease whose commit was not read. */
  private endLease(generation: Generation): void {
    if (generation.isLeased && !generation.isSealed) this.leaveUnfinished(generation)
  }

  private leaveUnfinished(generation: Generation): void {
    this.unfinished.note(generation, this.now())
    this.effects.tell('unfinished', generation)
    this.remove(generation)
    this.advance(generation.name)
  }

  private remove(generation: Generation): void {
    this.withdraw(generation)
    this.effects.close(generation.descriptors)
    this.effects.tell('gone', generation)
  }

  private keptOf(name: string): Kept {
    const kept = this.names.get(name) ?? { ready: null, lease: null, queue: [] }
    this.names.set(name, kept)
    return kept
  }

  private tidy(name: string): void {
    const kept = this.names.get(name)
    if (kept !== undefined && kept.ready === null && kept.lease === null && kept.queue.length === 0)
      this.names.delete(name)
  }

  /** The generation that a client fills. Throws KeepError 'gone' if it has no such lease. */
  leaseOf(client: Client, number: number): Generation {
    const generation = this.generations.get(number)
    if (generation?.writer === client && generation.isLeased && !generation.isSealed) return generation
    throw notLeased(number)
  }

  /** Throws unless all tables agree. */
  check(): void {
    const all = [...this.generations.values()]
    this.usage.check(all)
    for (const [name, { ready, lease, queue }] of this.names) {
      const others = all.filter(each => each.name === name && each !== ready && each !== lease)
      const agree =
        (ready === null || (ready.state === 'ready' && this.generations.get(ready.number) === ready)) &&
        (lease === null || (lease.isLeased && this.generations.get(lease.number) === lease)) &&
        others.every(each => each.isSealed && (each.isLeased || each.readers.size > 0)) &&
        (queue.length === 0 || lease !== null) &&
        queue.every(({ client }) => client.isOpen && client.waiting > 0)
      if (!agree) throw new Error(`the keeper's tables of ${shownName(name)} do not agree`)
    }
    for (const each of all) {
      const kept = this.names.get(each.name)
      const isAlone = each.state === 'retired' || (each.isLeased && each.isSealed)
      const isKnown = isAlone || kept?.ready === each || kept?.lease === each
      const areOpen = [...each.readers].every(([client, count]) => client.isOpen && count > 0)
      if (!isKnown || !areOpen) throw new Error(`generation ${each.number} is in no table, or a reader has ended`)
    }
  }
}

function isWanted(generation: Generation, { version }: Wanted): boolean {
  return version === undefined || generation.version === version
}

function isEvictable({ labels }: Generation): boolean {
  return labels['evictable'] === 'yes'
}

function refused(error: KeepError): Outcome {
  return { kind: 'refused', error }
}
