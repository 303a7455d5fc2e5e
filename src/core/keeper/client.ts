// The client of a keeper, for the regions of a device. After the keeper went away it connects again, and offers what it
// has attached to the keeper that it finds.

import { KeepError } from '../base/errors.js'
import { checkPath } from '../libraries/descriptors.js'
import { sealedFile } from '../libraries/sealed-memory.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import { MOST_DESCRIPTORS } from '../libraries/unix-socket.js'
import { Attachments, copiesOf, type Offer, offer, type Source } from './attachments.js'
import { type Answered, type Connection, KeeperGone, type RequestOptions, USUAL_TIMEOUT_MS } from './connection.js'
import { noteKeeper } from './kept-memory.js'
import { Link } from './link.js'
import { ANSWERS, type Requests } from './messages.js'
import { type Found, received } from './receiving.js'
import type { Facts, IfFull, KeepEvent, KeptDevice, PieceOf, PruneRule, RegionInfo } from './region.js'
import { usualSocketPath } from './socket-path.js'

export interface FindRequest {
  readonly name: string
  /** default any; of a new region the empty text */
  readonly version?: string | undefined
  readonly purpose: 'read' | 'fill'
  /** needed to fill: the most bytes that the contents will have */
  readonly bytes?: number | undefined
  readonly device: KeptDevice
  readonly labels?: Readonly<Record<string, string>> | undefined
  readonly ifFull?: IfFull | undefined
  /** how long to wait while another process fills the region; default no limit */
  readonly timeoutMs?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** A filled generation. */
export interface FilledRegion {
  readonly generation: number
  /** exported memory; the descriptors stay the caller's */
  readonly pieces: readonly PieceOf[]
  /** the names and places of its arrays, at most 16 MiB; empty without arrays */
  readonly directory: Uint8Array
  /** length of the contents */
  readonly bytes: number
}

export interface ClientOptions {
  /** default that of this user */
  readonly path?: string | undefined
  /** how long a request waits for a keeper that restarts, or does not answer; default 10 seconds */
  readonly timeoutMs?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** A generation that a client may fill. */
interface Lease {
  readonly connection: Connection
  readonly facts: Omit<Facts, 'bytes'>
}

export class KeeperClient {
  private readonly link: Link
  private readonly attachments = new Attachments()
  private readonly listeners = new Set<(event: KeepEvent) => void>()
  /** by generation */
  private readonly leases = new Map<number, Lease>()

  private constructor(
    path: string,
    private readonly timeoutMs: number,
  ) {
    const isNeeded = () => this.attachments.size > 0 || this.listeners.size > 0
    this.link = new Link({ path, timeoutMs, isNeeded, prepare: connection => this.prepare(connection) })
  }

  /**
   * Connects to a keeper. Without `timeoutMs` it does not wait until there is a keeper. Rejects with KeepError: 'gone'
   * without a keeper, 'user' for another user's keeper, 'protocol' for other versions, 'timeout' without an answer.
   */
  static async open({ path = usualSocketPath(), timeoutMs, signal }: ClientOptions = {}): Promise<KeeperClient> {
    checkPath(path)
    const client = new KeeperClient(path, timeoutMs ?? USUAL_TIMEOUT_MS)
    await client.link.connected(timeoutMs ?? 0, signal)
    noteKeeper(path)
    return client
  }

  /** Finds a region, waits for the process that fills it, or gets the lease to fill it. */
  find({ purpose, timeoutMs = Infinity, signal, ...wanted }: FindRequest): Promise<Found> {
    const deadline = performance.now() + timeoutMs
    const { name, version, bytes, device, labels, ifFull } = wanted
    const body: Requests['find'] = { name, version, purpose, bytes, device, labels, ifFull }
    return this.link.persist(async connection => {
      const left = Math.max(0, deadline - performance.now())
      const what = `'${name}' is not ready yet`
      const late = (answer: Answered) => void this.giveBack(connection, answer)
      const options = { timeoutMs: Math.min(left, this.timeoutMs), queuedMs: left, signal, what, late }
      const found = await received(connection, await connection.request('find', body, options), this.options(name))
      const { generation } = found
      if (found.kind === 'lease') {
        const facts = { generation, name, version: version ?? '', device, labels: labels ?? {} }
        this.leases.set(generation, { connection, facts })
      } else {
        const { version, bytes, labels } = found
        this.attachments.add({ generation, name, version, device, labels, bytes }, connection)
      }
      return found
    }, signal)
  }

  /**
   * Makes filled generations ready, all or none. Afterwards this process has them attached. If the keeper ends
   * meanwhile, the next one gets them. Rejects with KeepError 'gone' if a lease was ended by force, or no keeper comes.
   */
  async commit(filled: readonly FilledRegion[]): Promise<void> {
    const leases = filled.map(({ generation }) => this.leases.get(generation))
    const [first] = leases
    if (first === undefined || leases.some(each => each?.connection !== first.connection))
      throw new KeepError('commit: a generation is not leased to this client; begin with find()', 'gone')
    const set = filled.map((each, index): Offer => {
      const facts = { ...leases[index]!.facts, bytes: each.bytes }
      return { ...facts, isRetired: false, source: () => ({ ...each, pieces: copiesOf(each.pieces) }) }
    })
    let { connection } = first
    try {
      await this.commitTo(connection, filled)
    } catch (error) {
      if (!(error instanceof KeeperGone)) throw error
      // Whether it had noted the commit before its end is not known, and does not matter.
      connection = await this.link.persist(async next => {
        await offer(next, set, this.options('commit'))
        return next
      })
    }
    for (const { source, isRetired, ...facts } of set) {
      this.leases.delete(facts.generation)
      this.attachments.add(facts, connection)
    }
  }

  /** Names the memory of a region that was found or committed: the next keeper gets it if this one goes away. */
  hold(generation: number, source: Source): void {
    if (!this.attachments.hold(generation, source)) void this.link.rejoin()
  }

  /** Ends a lease without a commit. If a commit was read whose answer was not waited for, gives the region back. */
  async abandon(generation: number): Promise<void> {
    const connection = this.leases.get(generation)?.connection
    this.leases.delete(generation)
    const abandoned = this.tell(connection, 'abandon', generation)
    await Promise.all([abandoned, this.tell(connection, 'release', generation)])
  }

  /** Says that this process has closed a region: once for each `find` or `commit`, with the source that was named. */
  release(generation: number, source: Source | null = null): Promise<void> {
    return this.tell(this.attachments.take(generation, source), 'release', generation)
  }

  /** Says that the memory of a region is gone, for its device was reset. */
  async lost(generation: number): Promise<void> {
    this.attachments.take(generation, null)
    await this.ask('lost', { generation })
  }

  /** All generations, and the names whose writers ended early. */
  async list(): Promise<RegionInfo[]> {
    const all: RegionInfo[] = []
    for (let more = true; more; ) {
      const answer = await this.ask('list', { after: all.at(-1)?.generation ?? 0 })
      const page = ANSWERS.list(answer.body, 'the list')
      all.push(...page.regions)
      more = page.more
    }
    return all
  }

  /** Drops a region; with readers it is retired. `force` ends that, too, and the lease of a writer. */
  async drop(name: string, { force = false }: { readonly force?: boolean } = {}): Promise<void> {
    let isRepeated = false // the keeper may have dropped it, and ended before its answer
    await this.link.persist(async connection => {
      try {
        await connection.request('drop', { name, force }, this.options('drop'))
      } catch (error) {
        if (!isRepeated || !(error instanceof KeepError) || error.code !== 'absent') throw error
      } finally {
        isRepeated = true
      }
    })
  }

  /** Drops regions without readers. Returns them. */
  async prune(rule: PruneRule): Promise<RegionInfo[]> {
    const all: RegionInfo[] = []
    for (let more = true; more; ) {
      const page = ANSWERS.prune((await this.ask('prune', rule)).body, 'the list')
      all.push(...page.regions)
      more = page.more
    }
    return all
  }

  /** Calls `listener` for each change, until the result is disposed. It does not keep the process alive. */
  watch(listener: (event: KeepEvent) => void): Disposable {
    const own = (event: KeepEvent) => listener(event)
    this.listeners.add(own)
    if (this.listeners.size === 1) this.setWatching(this.link.current, true)
    return {
      [Symbol.dispose]: () => {
        if (this.listeners.delete(own) && this.listeners.size === 0) this.setWatching(this.link.current, false)
      },
    }
  }

  /** Ends the connection: leases end, and nothing is attached any more. */
  close(): void {
    this.link.close()
  }

  /** Tells a keeper that is new to this client what it has to know. */
  private async prepare(connection: Connection): Promise<void> {
    connection.onEvent = body => this.onEvent(body)
    if (this.listeners.size > 0) this.setWatching(connection, true)
    await this.attachments.offerTo(connection, { ...this.options('offer'), isBackground: true })
  }

  private setWatching(connection: Connection | null, on: boolean): void {
    connection?.request('watch', { on }, { ...this.options('watch'), isBackground: true }).catch(() => {})
  }

  private ask<Type extends keyof Requests>(type: Type, body: Requests[Type] | PruneRule): Promise<Answered> {
    return this.link.persist(connection => connection.request(type, body, this.options(type)))
  }

  /** Tells the keeper something that it knows already if the connection has ended. */
  private async tell(connection: Connection | null | undefined, type: 'abandon' | 'release', generation: number) {
    if (connection?.isOpen !== true) return
    try {
      await connection.request(type, { generation }, this.options(type))
    } catch (error) {
      if (!(error instanceof KeeperGone)) throw error
    }
  }

  /** Gives back what came after the wait for it was given up. */
  private async giveBack(connection: Connection, answer: Answered): Promise<void> {
    answer.descriptors.forEach(closeDescriptor)
    const { kind, generation } = ANSWERS.find(answer.body, 'the answer')
    await this.tell(connection, kind === 'lease' ? 'abandon' : 'release', generation).catch(() => {})
  }

  private options(what: string): RequestOptions {
    return { timeoutMs: this.timeoutMs, what: `${what}: the keeper does not answer` }
  }

  /** Rejects with KeeperGone if the connection has ended. */
  private async commitTo(connection: Connection, filled: readonly FilledRegion[]): Promise<void> {
    const directories: number[] = []
    try {
      for (const { generation, pieces, directory } of filled) {
        await sendPieces(connection, generation, pieces, this.options('commit'))
        if (directory.length > 0) directories.push(sealedFile('cuda-mempool-directory', directory))
      }
      const set = filled.map(({ generation, bytes, pieces, directory }) => ({
        generation,
        bytes,
        pieces: pieces.length,
        directory: directory.length > 0,
      }))
      await connection.request('commit', { set }, { ...this.options('commit'), descriptors: directories })
    } finally {
      directories.forEach(closeDescriptor)
    }
  }

  private onEvent(body: unknown): void {
    const event = ANSWERS.event(body, 'the event')
    this.attachments.note(event)
    for (const listener of [...this.listeners]) {
      try {
        listener(event)
      } catch (error) {
        queueMicrotask(() => {
          throw error // as of any listener; thrown here it would end the connection
        })
      }
    }
  }
}

/** Sends pieces in batches; each is confirmed before the next. */
async function sendPieces(
  connection: Connection,
  generation: number,
  pieces: readonly PieceOf[],
  options: RequestOptions,
) {
  for (let first = 0; first < pieces.length; first += MOST_DESCRIPTORS) {
    const batch = pieces.slice(first, first + MOST_DESCRIPTORS)
    const body: Requests['pieces'] = { generation, first, sizes: batch.map(piece => piece.bytes) }
    await connection.request('pieces', body, { ...options, descriptors: batch.map(piece => piece.descriptor) })
  }
}
