// A client's way to its keeper: the connection of now, and the next one if it has ended. A request connects anew, and
// so does a client that waits for events or has something attached. That does not keep the process alive.

import { setTimeout as pause } from 'node:timers/promises'
import { KeepError } from '../base/errors.js'
import { printable } from '../base/shown-text.js'
import { Connection, KeeperGone } from './connection.js'
import { usualSocketPath } from './socket-path.js'
import { startCommand } from './state/commands.js'

const FIRST_PAUSE_MS = 10
const LONGEST_PAUSE_MS = 1000
/** Node's longest timer is longer. */
const FOREVER_MS = 2 ** 30

export interface LinkOptions {
  readonly path: string
  /** how long a request waits for a keeper that restarts, or does not answer */
  readonly timeoutMs: number
  /** completes a new connection before requests use it; does not reject */
  readonly prepare: (connection: Connection) => Promise<void>
  /** whether to connect again without a request */
  readonly isNeeded: () => boolean
}

export class Link {
  private connection: Connection | null = null
  private isPrepared = false
  private connecting: Promise<Connection | null> | null = null
  private isRejoining = false
  private isClosed = false
  private pauseMs = FIRST_PAUSE_MS

  constructor(private readonly options: LinkOptions) {}

  /** Null without one that is open and prepared. */
  get current(): Connection | null {
    return this.connection?.isOpen === true && this.isPrepared ? this.connection : null
  }

  /** Repeats `work` on a new connection if the keeper ends meanwhile. */
  async persist<T>(work: (connection: Connection) => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (;;) {
      const connection = await this.connected(this.options.timeoutMs, signal)
      try {
        return await work(connection)
      } catch (error) {
        if (!(error instanceof KeeperGone)) throw error
      }
    }
  }

  /** The connection, made again if needed in growing pauses. Throws KeepError 'gone' if no keeper comes in time. */
  async connected(timeoutMs: number, signal?: AbortSignal): Promise<Connection> {
    const deadline = performance.now() + timeoutMs
    const alive = setInterval(() => {}, FOREVER_MS)
    try {
      for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
        signal?.throwIfAborted()
        if (this.isClosed) throw closed()
        if (this.current !== null) return this.current
        const connection = await orAborted(this.connect(), signal)
        if (connection !== null) return connection
        if (performance.now() + pauseMs >= deadline) throw noKeeper(this.options.path)
        await pause(pauseMs, undefined, signal === undefined ? {} : { signal })
      }
    } finally {
      clearInterval(alive)
    }
  }

  /** Connects again in growing pauses, as long as that is needed. */
  async rejoin(): Promise<void> {
    if (this.isRejoining) return
    this.isRejoining = true
    const isDue = () => !this.isClosed && this.current === null && this.options.isNeeded()
    while (isDue()) {
      await pause(this.pauseMs, undefined, { ref: false })
      this.pauseMs = Math.min(2 * this.pauseMs, LONGEST_PAUSE_MS)
      if (isDue()) await this.connect().catch(() => {}) // the next request gets the error
    }
    this.isRejoining = false
  }

  close(): void {
    this.isClosed = true
    this.connection?.end(closed())
  }

  private connect(): Promise<Connection | null> {
    this.connecting ??= this.opened().finally(() => {
      this.connecting = null
    })
    return this.connecting
  }

  private async opened(): Promise<Connection | null> {
    const { path, timeoutMs, prepare } = this.options
    const connection = await Connection.open(path, { timeoutMs, isBackground: true })
    if (connection === null) return null
    const start = performance.now()
    this.connection = connection
    this.isPrepared = false
    connection.onEnd = () => {
      // A keeper that ends each connection at once is not asked without a pause.
      if (performance.now() - start > LONGEST_PAUSE_MS) this.pauseMs = FIRST_PAUSE_MS
      void this.rejoin()
    }
    if (this.isClosed) connection.end(closed())
    else await prepare(connection)
    this.isPrepared = true
    return connection.isOpen ? connection : null
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
  const command = startCommand(path === usualSocketPath() ? null : path)
  return new KeepError(`no keeper listens at ${printable(path)}; start one: ${command}`, 'gone')
}

function closed(): KeepError {
  return new KeepError('the connection to the keeper was closed by this program; open it again', 'gone')
}
