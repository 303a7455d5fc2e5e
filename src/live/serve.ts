// Makes the pools of this process watchable: an HTTP server on a Unix socket of this user, and on a port of this
// machine on request. The server never keeps the process alive, and does nothing without readers.

import { randomBytes, timingSafeEqual } from 'node:crypto'
import { chmodSync, linkSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import { checkOptionNames } from '../core/base/option-names.js'
import { showAsText } from '../core/base/readable.js'
import { Requests, refuse } from './requests.js'
import { clear, freeSocketPath, prepareFolder, socketFolder } from './socket-path.js'
import { PoolList, type WatchedPool, type WatchedPools } from './watched-pools.js'

const LOCAL = '127.0.0.1'
const MOST_CONNECTIONS = 64
const TOKEN_BYTES = 24
/** A connection that sends no request is closed, so that it does not keep others out. */
const PATIENCE = { headersTimeout: 5000, connectionsCheckingInterval: 1000 }
/** Linux allows no longer names of sockets. */
const MOST_PATH_BYTES = 107
/** Where a socket is made: the start of a folder's name, and the name in it. */
const FOLDER = '.'
const NAME = 's'

/** Options of `serve()`. */
export interface ServeOptions {
  /**
   * path of the Unix socket; default PID.sock in the folder cuda-mempool of XDG_RUNTIME_DIR, or in one of this user in
   * the temporary folder
   */
  readonly socket?: string
  /** a TCP port on 127.0.0.1 besides, for browsers and Prometheus; 0 takes a free one; default none */
  readonly port?: number
  /**
   * the secret that requests to the port must show, at least 16 letters; default a random text, see `LiveServer.url`
   */
  readonly token?: string
}

/**
 * Serves the figures of pools to `cuda-mempool top`, browsers and Prometheus, until `close`. The process may end
 * meanwhile. Only this user can open the socket; a request to the port needs the token. Rejects with TypeError or
 * RangeError for bad arguments, and with PoolError if the socket or the port is in use, or not allowed, and on
 * Windows.
 */
export async function serve(pools: WatchedPools, options: ServeOptions = {}): Promise<LiveServer> {
  const list = new PoolList('serve', pools)
  checkOptionNames('serve', options, ['socket', 'port', 'token'])
  const { socket, port, token = randomBytes(TOKEN_BYTES).toString('base64url') } = options
  if (socket !== undefined && (typeof socket !== 'string' || socket === ''))
    throw new WrongTypeError(`serve: socket must be a path, not ${describe(socket)}`)
  if (port !== undefined && !(Number.isInteger(port) && port >= 0 && port <= 65_535))
    throw new OutOfRangeError(`serve: port must be a whole number from 0 to 65535, not ${describe(port)}`)
  if (typeof token !== 'string' || token.length < 16 || !/^[\w.~-]+$/.test(token))
    throw new WrongTypeError('serve: token must be a text of at least 16 letters, digits, or any of . _ ~ -')
  if (process.platform === 'win32')
    throw new PoolError('serve: Windows has no sockets that only their user can open; watch the pools in WSL')
  const path = socket ?? (await defaultSocket())
  if (pathBytes(path) > MOST_PATH_BYTES)
    throw new OutOfRangeError(`serve: the path ${path} is longer than the ${MOST_PATH_BYTES} bytes of a socket's name`)
  if (socket !== undefined && !(await clear(socket)))
    throw new PoolError(`serve: ${socket} is in use; close the other server, or choose another path`)
  return LiveServer.open(list, path, port, token)
}

async function defaultSocket(): Promise<string> {
  const folder = socketFolder()
  prepareFolder(folder)
  return freeSocketPath(folder)
}

/** A server of pools. Made by `serve()`. */
export class LiveServer implements AsyncDisposable {
  /** the address for a browser, with the token; null without a port */
  readonly url: string | null = null
  private readonly servers: Server[] = []
  private readonly requests: Requests
  private hasSocket = false
  private readonly removeSocket = () => {
    if (this.hasSocket) rmSync(this.socketPath, { force: true })
    this.hasSocket = false
  }

  private constructor(
    private readonly pools: PoolList,
    /** path of the Unix socket */
    readonly socketPath: string,
    /** the secret that a request to the port must show: `?token=` or `Authorization: Bearer` */
    readonly token: string,
  ) {
    this.requests = new Requests(pools)
  }

  /** @internal */
  static async open(pools: PoolList, path: string, port: number | undefined, token: string): Promise<LiveServer> {
    const live = new LiveServer(pools, path, token)
    try {
      await listenPrivately(
        live.newServer((request, response) => live.answer(request, response)),
        path,
      )
      live.hasSocket = true
      process.once('exit', live.removeSocket)
      if (port !== undefined) {
        const server = live.newServer((request, response) => live.answerLocal(request, response))
        await listening(server, { host: LOCAL, port })
        const mutable: { url: string | null } = live
        mutable.url = `http://${LOCAL}:${(server.address() as AddressInfo).port}/?token=${token}`
      }
    } catch (error) {
      await live.close()
      const { code, message } = error as NodeJS.ErrnoException
      const remedy = code === 'EADDRINUSE' || code === 'EEXIST' ? 'choose another port or socket' : 'choose another one'
      throw new PoolError(`serve: cannot listen: ${message}; ${remedy}`)
    }
    return live
  }

  /**
   * Serves another pool, under `name` or a name by its kind, and returns its name: `name-2` if `name` is taken.
   * Throws TypeError for anything but a pool.
   */
  add(pool: WatchedPool, name?: string): string {
    return this.pools.add(pool, name)
  }

  /** Ends all connections and removes the socket. A second close does nothing. */
  async close(): Promise<void> {
    this.requests.close()
    process.off('exit', this.removeSocket)
    const closing = this.servers.splice(0).map(
      server =>
        new Promise<void>(resolve => {
          server.close(() => resolve())
          server.closeAllConnections()
        }),
    )
    this.removeSocket()
    await Promise.all(closing)
  }

  /** The same as `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** One line for people, such as `LiveServer { /tmp/7.sock, port 9464, open }`, without the token. */
  toString(): string {
    const port = this.port === null ? '' : `, port ${this.port}`
    return `LiveServer { ${this.socketPath}${port}, ${this.servers.length === 0 ? 'closed' : 'open'} }`
  }

  /** The plain values that JSON.stringify writes, without the token. */
  toJSON(): object {
    return { socketPath: this.socketPath, port: this.port, closed: this.servers.length === 0 }
  }

  private get port(): number | null {
    return this.url === null ? null : Number(new URL(this.url).port)
  }

  private newServer(answer: (request: IncomingMessage, response: ServerResponse) => void): Server {
    const server = createServer(PATIENCE, answer)
    server.maxConnections = MOST_CONNECTIONS
    server.unref()
    server.on('connection', socket => socket.unref())
    this.servers.push(server)
    return server
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const url = urlOf(request)
    void this.requests.answer(request, response, url)
  }

  /** Any web page can send requests to a port of this machine, so they must show the token and a local name. */
  private answerLocal(request: IncomingMessage, response: ServerResponse): void {
    const { host = '', authorization = '' } = request.headers
    const { port } = request.socket.address() as AddressInfo
    const url = urlOf(request)
    const asked = isPath(request) ? [host] : [host, url.host]
    if (!asked.every(each => each === `${LOCAL}:${port}` || each === `localhost:${port}`)) {
      refuse(response, 403, `the Host header and the host of the target must be ${LOCAL}:${port}`)
      return
    }
    const given = url.searchParams.get('token') ?? /^Bearer (.+)$/.exec(authorization)?.[1] ?? ''
    if (!isSame(given, this.token)) {
      refuse(response, 401, 'the token is missing or wrong: ?token=, or Authorization: Bearer')
      return
    }
    this.answer(request, response)
  }
}

showAsText(LiveServer)

/** The target of a request: a path, or a whole URL as proxies get it. All others become a path that there is not. */
function urlOf(request: IncomingMessage): URL {
  const { url = '' } = request
  const whole = isPath(request) ? `http://localhost${url}` : url
  return new URL(URL.canParse(whole) ? whole : 'http://localhost/*')
}

function isPath({ url = '' }: IncomingMessage): boolean {
  return url.startsWith('/')
}

function isSame(given: string, token: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(token)]
  return left.length === right.length && timingSafeEqual(left, right)
}

/** The bytes of the longest name that the socket at `path` has while it is made. */
function pathBytes(path: string): number {
  const made = join(dirname(path), `${FOLDER}XXXXXX`, NAME)
  return Math.max(Buffer.byteLength(path), Buffer.byteLength(made))
}

/**
 * Listens at `path`, where nothing may be yet, so that only this user can ever open the socket. Node makes a socket
 * with the rights that the umask leaves. So it is made in a folder of this user alone, and gets its own name when its
 * rights are set. Closing the server does not remove it.
 */
async function listenPrivately(server: Server, path: string): Promise<void> {
  const folder = mkdtempSync(join(dirname(path), FOLDER))
  const made = join(folder, NAME)
  try {
    await listening(server, { path: made })
    chmodSync(made, 0o600)
    linkSync(made, path)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Resolves when a server listens. Rejects with the error of the system. */
function listening(server: Server, where: { path: string } | { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ ...where, exclusive: true }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}
