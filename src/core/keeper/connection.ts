// A client's end of a connection: requests, and their answers in any order. The keeper has one end of a stream socket,
// and Node waits at the other end: bytes say that an answer came, its end says that the keeper has ended. So no thread
// waits, and only requests without an answer keep the process alive.

import { Socket } from 'node:net'
import { DescriptorError, KeepError } from '../base/errors.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import { MOST_DESCRIPTORS, streamPair, UnixSocket } from '../libraries/unix-socket.js'
import { ANSWERS, type Requests } from './messages.js'
import { decoded, encoded, type Message, MOST_PACKET_BYTES, type PacketType, VERSIONS } from './protocol.js'
import { untrusted } from './socket-path.js'

/** How long a keeper may take for an answer that depends on no other client. */
export const USUAL_TIMEOUT_MS = 10_000
/** A full socket is tried again after this time: the keeper is stopped, or reads as fast as it can. */
const FULL_RETRY_MS = 5

/** The answer to a request, with its descriptors, which belong to the caller. */
export interface Answered {
  readonly body: unknown
  readonly descriptors: readonly number[]
}

export interface RequestOptions {
  /** descriptors that go with the request; they stay the caller's */
  readonly descriptors?: readonly number[]
  /** how long to wait for the answer */
  readonly timeoutMs: number
  /** how long to wait after the keeper has said that the request is in a queue */
  readonly queuedMs?: number
  readonly signal?: AbortSignal | undefined
  /** begins the sentence of a timeout */
  readonly what: string
  /** gets an answer that comes after the wait was given up */
  readonly late?: (answer: Answered) => void
  /** the process may end before the answer */
  readonly isBackground?: boolean
}

/** A request without an answer. */
interface Pending {
  readonly resolve: (answer: Answered) => void
  readonly reject: (error: unknown) => void
  /** begins the wait in the keeper's queue */
  readonly queued: () => void
  /** ends all waits */
  readonly settled: () => void
  readonly isBackground: boolean
}

interface Unsent {
  readonly bytes: Uint8Array
  readonly descriptors: readonly number[]
  readonly request: number
}

/** Rejects requests whose keeper has ended before it answered. */
export class KeeperGone extends Error {}

export class Connection {
  isOpen = true
  /** that of the keeper, and of all that take over from it */
  keeper = 0
  onEvent: (body: unknown) => void = () => {}
  onEnd: () => void = () => {}
  private readonly bell: Socket
  private readonly pending = new Map<number, Pending>()
  /** requests that were taken back, until the keeper confirms that */
  private readonly givenUp = new Map<number, (answer: Answered) => void>()
  private unsent: Unsent[] = []
  private lastRequest = 0

  private constructor(
    private readonly socket: UnixSocket,
    bell: number,
  ) {
    this.bell = new Socket({ fd: bell })
    this.bell.on('data', () => this.read())
    this.bell.on('error', () => this.end())
    this.bell.on('close', () => {
      this.read()
      this.end()
    })
    this.bell.unref()
  }

  /**
   * Connects to the keeper at `path`; null without a keeper. Throws KeepError 'user' if it is of another user,
   * 'protocol' if it speaks other versions, 'timeout' if it does not answer.
   */
  static async open(
    path: string,
    options: Pick<RequestOptions, 'timeoutMs' | 'isBackground'>,
  ): Promise<Connection | null> {
    const obstacle = untrusted(path)
    if (obstacle !== null) throw obstacle
    const socket = UnixSocket.connectTo(path)
    if (socket === null) return null
    const { user, pid } = socket.peer()
    if (user !== process.geteuid!()) {
      socket.close()
      throw otherUser(path, user)
    }
    const [own, keepers] = streamPair()
    const connection = new Connection(socket, own)
    try {
      const body: Requests['hello'] = { versions: VERSIONS }
      const what = `the keeper at ${path}, process ${pid}, does not answer: it is stopped or busy`
      const answering = connection.request('hello', body, { ...options, descriptors: [keepers], what })
      closeDescriptor(keepers) // it was sent; as long as this process has it, the bell would not tell an end
      const answer = await answering
      connection.keeper = ANSWERS.hello(answer.body, 'the answer to hello').keeper
      return connection
    } catch (error) {
      connection.end()
      if (error instanceof KeeperGone) return null
      throw error
    }
  }

  /** Rejects with KeepError, with KeeperGone, or with the reason of the signal. */
  request(type: PacketType, body: object, options: RequestOptions): Promise<Answered> {
    const { descriptors = [], timeoutMs, queuedMs = timeoutMs, signal, what, late, isBackground = false } = options
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted()
      if (!this.isOpen) throw new KeeperGone()
      const request = ++this.lastRequest
      const bytes = encoded(type, request, body)
      let timer: NodeJS.Timeout | undefined
      const start = (ms: number) => {
        clearTimeout(timer)
        if (ms !== Infinity) timer = setTimeout(() => this.giveUp(request, timedOut(what, ms), late), ms)
        if (isBackground) timer?.unref()
      }
      const abort = () => this.giveUp(request, signal?.reason, late)
      const settled = () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', abort)
      }
      signal?.addEventListener('abort', abort, { once: true })
      start(timeoutMs)
      this.pending.set(request, { resolve, reject, settled, queued: () => start(queuedMs), isBackground })
      if (!isBackground) this.bell.ref()
      this.unsent.push({ request, bytes, descriptors })
      this.sendUnsent()
    })
  }

  /** Ends the connection, and with it all that its requests wait for. */
  end(error: unknown = new KeeperGone()): void {
    if (!this.isOpen) return
    this.isOpen = false
    this.unsent = []
    this.socket.close()
    this.bell.destroy()
    for (const request of [...this.pending.keys()]) this.settled(request)?.reject(error)
    this.onEnd()
  }

  private sendUnsent(): void {
    while (this.isOpen && this.unsent.length > 0) {
      const { request, bytes, descriptors } = this.unsent[0]
      try {
        const result = this.socket.sendPacket(bytes, descriptors)
        if (result === null) {
          setTimeout(() => this.sendUnsent(), FULL_RETRY_MS).unref()
          return
        }
        if (result === 'gone') return // the bell tells, after the last answers were read
      } catch (error) {
        this.settled(request)?.reject(refusedBySystem(error))
      }
      this.unsent.shift()
    }
  }

  private read(): void {
    while (this.isOpen) {
      try {
        const packet = this.socket.receivePacket(MOST_PACKET_BYTES, MOST_DESCRIPTORS)
        if (packet === null || packet === 'gone') return
        this.take(decoded(packet.bytes, 'the keeper'), packet.descriptors)
      } catch (error) {
        this.end(error)
      }
    }
  }

  private take({ type, request, body }: Message, descriptors: readonly number[]): void {
    const late = this.givenUp.get(request)
    if (type === 'ok' && this.pending.has(request)) this.settled(request)?.resolve({ body, descriptors })
    else if (type === 'ok' && late !== undefined) late({ body, descriptors })
    else descriptors.forEach(closeDescriptor)
    if (type === 'event') this.onEvent(body)
    else if (type === 'queued') this.pending.get(request)?.queued()
    else if (type === 'error') {
      const { code, message } = ANSWERS.error(body, 'the answer')
      if (request === 0)
        this.end(new KeepError(message, code)) // the keeper closes the connection
      else this.settled(request)?.reject(new KeepError(message, code))
    }
  }

  /** Rejects a request. If an answer matters, it is taken back, and `late` gets one that was already on its way. */
  private giveUp(request: number, error: unknown, late: RequestOptions['late']): void {
    const wasSent = this.unsent.every(each => each.request !== request)
    this.unsent = this.unsent.filter(each => each.request !== request)
    this.settled(request)?.reject(error)
    if (!wasSent || late === undefined || !this.isOpen) return
    this.givenUp.set(request, late)
    const options = { timeoutMs: USUAL_TIMEOUT_MS, what: 'a request could not be taken back' }
    const forget = () => this.givenUp.delete(request)
    this.request('cancel', { request }, options).then(forget, forget)
  }

  /** A request that has its answer now; undefined if it had it before. */
  private settled(request: number): Pending | undefined {
    const pending = this.pending.get(request)
    this.pending.delete(request)
    pending?.settled()
    if ([...this.pending.values()].every(each => each.isBackground)) this.bell.unref()
    return pending
  }
}

/** Linux refuses to send more descriptors than a process may have open, until the receiver has read them. */
function refusedBySystem(error: unknown): unknown {
  if (!(error instanceof DescriptorError)) return error
  return new KeepError(`the system refuses to send to the keeper: ${error.message}`, 'quota', { cause: error })
}

function timedOut(what: string, ms: number): KeepError {
  return new KeepError(`${what}; it was given up after ${Number((ms / 1000).toFixed(2))} s`, 'timeout')
}

function otherUser(path: string, user: number): KeepError {
  const own = `this process of user ${process.geteuid!()}`
  return new KeepError(`the keeper at ${path} is of user ${user}, and ${own}; run both as the same user`, 'user')
}
