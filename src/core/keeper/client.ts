// The client of a keeper, for the regions of a device. After the keeper went away the next request connects again.

import { setTimeout as pause } from 'node:timers/promises'
import { KeepError } from '../base/errors.js'
import { checkPath } from '../libraries/descriptors.js'
import { sealedFile } from '../libraries/sealed-memory.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import { MOST_DESCRIPTORS } from '../libraries/unix-socket.js'
import { type Answered, Connection, KeeperGone, type RequestOptions, USUAL_TIMEOUT_MS } from './connection.js'
import { ANSWERS, type Requests } from './messages.js'
import { type Found, received } from './receiving.js'
import type { IfFull, KeepEvent, KeptDevice, PieceOf, PruneRule, RegionInfo } from './region.js'
import { usualSocketPath } from './socket-path.js'

const FIRST_PAUSE_MS = 10
const LONGEST_PAUSE_MS = 1000

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

export class KeeperClient {
  private connection: Connection | null = null
  private connecting: Promise<Connection | null> | null = null
  private isClosed = false
  private readonly listeners = new Set<(event: KeepEvent) => void>()
  /** the connections to which leases belong, by generation */
  private readonly leases = new Map<number, Connection>()

  private constructor(
    private readonly path: string,
    private readonly timeoutMs: number,
  ) {}

  /**
   * Connects to a keeper. Without `timeoutMs` it does not wait until there is a keeper. Rejects with KeepError: 'gone'
   * without a keeper, 'user' for another user's keeper, 'protocol' for other versions, 'timeout' without an answer.
   */
  static async open({ path = usualSocketPath(), timeoutMs, signal }: ClientOptions = {}): Promise<KeeperClient> {
    checkPath(path)
    const client = new KeeperClient(path, timeoutMs ?? USUAL_TIMEOUT_MS)
    await client.connected(timeoutMs ?? 0, signal)
    return client
  }

  /** Finds a region, waits for the process that fills it, or gets the lease to fill it. */
  find({ purpose, timeoutMs = Infinity, signal, ...wanted }: FindRequest): Promise<Found> {
    const deadline = performance.now() + timeoutMs
    const { name, version, bytes, device, labels, ifFull } = wanted
    const body: Requests['find'] = { name, version, purpose, bytes, device, labels, ifFull }
    return this.persist(async connection => {
      const left = Math.max(0, deadline - performance.now())
      const what = `'${name}' is not ready yet`
      const late = (answer: Answered) => void this.giveBack(connection, answer)
      const options = { timeoutMs: Math.min(left, this.timeoutMs), queuedMs: left, signal, what, late }
      const found = await received(connection, await connection.request('find', body, options), this.options(name))
      if (found.kind === 'lease') this.leases.set(found.generation, connection)
      return found
    }, signal)
  }

  /**
   * Makes filled generations ready, all or none. Afterwards this process has them attached. Rejects with KeepError
   * 'gone' if the lease has ended: by force, or with the keeper.
   */
  async commit(filled: readonly FilledRegion[]): Promise<void> {
    const connection = this.leaseholder(filled)
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
      for (const { generation } of filled) this.leases.delete(generation)
    } catch (error) {
      throw error instanceof KeeperGone ? noKeeper(this.path) : error
    } finally {
      directories.forEach(closeDescriptor)
    }
  }

  /** Ends a lease without a commit. */
  abandon(generation: number): Promise<void> {
    const connection = this.leases.get(generation)
    this.leases.delete(generation)
    return this.tell(connection, 'abandon', generation)
  }

  /** Says that this process has closed a region: once for each `find` or `commit`. */
  release(generation: number): Promise<void> {
    return this.tell(this.connection, 'release', generation)
  }

  /** Says that the memory of a region is gone, for its device was reset. */
  async lost(generation: number): Promise<void> {
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
    await this.ask('drop', { name, force })
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
    if (this.listeners.size === 1) this.setWatching(true)
    return {
      [Symbol.dispose]: () => {
        if (this.listeners.delete(own) && this.listeners.size === 0) this.setWatching(false)
      },
    }
  }

  /** Ends the connection: leases end, and nothing is attached any more. */
  close(): void {
    this.isClosed = true
    this.connection?.end(closed())
  }

  private setWatching(on: boolean): void {
    const { connection } = this
    if (connection?.isOpen === true) void connection.request('watch', { on }, this.options('watch')).catch(() => {})
  }

  private ask<Type extends keyof Requests>(type: Type, body: Requests[Type] | PruneRule): Promise<Answered> {
    return this.persist(connection => connection.request(type, body, this.options(type)))
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

  private leaseholder(filled: readonly FilledRegion[]): Connection {
    const connections = filled.map(({ generation }) => this.leases.get(generation))
    const [first] = connections
    if (first === undefined || connections.some(each => each !== first))
      throw new KeepError('commit: a generation is not leased to this client; begin with find()', 'gone')
    return first
  }

  /** Repeats `work` on a new connection if the keeper ends meanwhile. */
  private async persist<T>(work: (connection: Connection) => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (;;) {
      const connection = await this.connected(this.timeoutMs, signal)
      try {
        return await work(connection)
      } catch (error) {
        if (!(error instanceof KeeperGone)) throw error
      }
    }
  }

  /** The connection, made again if needed in growing pauses. Throws KeepError 'gone' if no keeper comes in time. */
  private async connected(timeoutMs: number, signal?: AbortSignal): Promise<Connection> {
    const deadline = performance.now() + timeoutMs
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      signal?.throwIfAborted()
      if (this.isClosed) throw closed()
      if (this.connection?.isOpen === true) return this.connection
      this.connecting ??= this.connect()
      const connection = await orAborted(this.connecting, signal)
      if (connection !== null) return connection
      if (performance.now() + pauseMs >= deadline) throw noKeeper(this.path)
      await pause(pauseMs, undefined, signal === undefined ? {} : { signal })
    }
  }

  private async connect(): Promise<Connection | null> {
    try {
      const connection = await Connection.open(this.path, this.timeoutMs)
      if (connection === null) return null
      if (this.isClosed) connection.end(closed())
      this.connection = connection
      connection.onEvent = body => this.onEvent(body)
      if (this.listeners.size > 0) this.setWatching(true)
      return connection
    } finally {
      this.connecting = null
    }
  }

  private onEvent(body: unknown): void {
    const event = ANSWERS.event(body, 'the event')
    for (const listener of [...this.listeners]) listener(event)
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

function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

function noKeeper(path: string): KeepError {
  return new KeepError(`no keeper listens at ${path}; start one: cuda-mempool keep`, 'gone')
}

function closed(): KeepError {
  return new KeepError('the connection to the keeper was closed by this program; open it again', 'gone')
}
