// Passes file descriptors between processes on Linux: GPU memory is shared as a file descriptor, and Node cannot pass
// one. core/pool/mapped/descriptor-passing.ts uses it. The sender listens at a path that both know. The receiver
// connects, takes the descriptor with a message, and confirms. Either may come first. Both poll every few milliseconds,
// so neither blocks.

import { setTimeout as pause } from 'node:timers/promises'
import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { DescriptorError } from '../base/errors.js'
import type { Bytes } from '../base/typed-arrays.js'
import { text, within } from './arguments.js'
import { closeDescriptor, duplicateDescriptor } from './system-calls.js'
import { MOST_PATH_BYTES, type Packet, UnixSocket } from './unix-socket.js'

export { closeDescriptor }

/** The largest message with a descriptor. */
export const MOST_MESSAGE_BYTES = 65536

/** interval of polls */
const POLL_INTERVAL_MS = 5
const MOST_TIMEOUT_MS = 2 ** 31 - 1
/** First byte of each message: an empty message differs from a closed socket, and a foreign message is recognised. */
const MARK = 0xfd

/** Options of both sides. */
export interface PassOptions {
  /** how long to wait for the other process, in milliseconds; default 10 seconds */
  readonly timeoutMs?: number
}

/** A descriptor from another process, with its message. */
export interface ReceivedDescriptor {
  /** belongs to this process, which closes it with `closeDescriptor` */
  readonly descriptor: number
  readonly message: Bytes
}

/** The connection of two processes after a descriptor was passed. Each end shows whether the other end is open. */
export interface Connection {
  /** false after either end was closed, or the other process has ended */
  readonly open: boolean
  /** A second close does nothing. */
  close(): void
}

/**
 * Passes an open file to one other process of the same user, and stays connected with it. That process calls
 * `acceptDescriptor` with the same path. The call creates a socket file at `path`, which must not exist, and removes
 * it again. The caller keeps its descriptor, and may close it once this function has returned its promise.
 *
 * The promise is fulfilled when the other process has a descriptor of its own. It rejects with a DescriptorError, and
 * leaves nothing behind. The codes are ETIMEDOUT if no process came, EPERM for a process of another user, EBADF for a
 * closed descriptor, ENOTSUP on other systems than Linux, or codes of the system.
 */
export async function offerDescriptor(
  path: string,
  descriptor: number,
  message: Uint8Array,
  options: PassOptions,
): Promise<Connection> {
  checkPath(path)
  const packet = packetOf(message)
  const deadline = deadlineOf(options)
  const copy = duplicateDescriptor(descriptor)
  try {
    const listener = UnixSocket.listenAt(path)
    try {
      for (;;) {
        const receiver = await lookUntil(deadline, () => listener.accept(), 'accept', `no process came to ${path}`)
        if (await handedTo(receiver, packet, copy, deadline, path)) return new SocketEnd(receiver)
        await pause(POLL_INTERVAL_MS) // that process has ended; another may come
      }
    } finally {
      listener.close()
    }
  } finally {
    closeDescriptor(copy)
  }
}

/**
 * Takes the descriptor that another process of the same user passes at `path` with `offerDescriptor`, and stays
 * connected with it. It rejects with a DescriptorError, and leaves nothing open. The codes are ETIMEDOUT if no
 * descriptor came, EPERM for a sender of another user, EMFILE for too many open files in this process, EPROTO if
 * another program listens at `path`, ENOTSUP on other systems than Linux, or codes of the system.
 */
export async function acceptDescriptor(
  path: string,
  options: PassOptions,
): Promise<ReceivedDescriptor & { readonly connection: Connection }> {
  checkPath(path)
  const deadline = deadlineOf(options)
  for (;;) {
    const connect = () => UnixSocket.connectTo(path)
    const sender = await lookUntil(deadline, connect, 'connect', `no process passed a descriptor at ${path}`)
    let received: ReceivedDescriptor | null = null
    try {
      checkUser(sender, path)
      const receive = () => sender.receivePacket(1 + MOST_MESSAGE_BYTES, 1)
      const packet = await lookUntil(deadline, receive, 'recvmsg', `the process at ${path} sent nothing`)
      if (packet !== 'gone') received = accepted(packet, sender)
      if (received !== null) return { ...received, connection: new SocketEnd(sender) }
    } finally {
      if (received === null) sender.close()
    }
    await pause(POLL_INTERVAL_MS) // that sender has served another process or ended; another may come
  }
}

/** Sends to a connected process, and waits for its confirmation; false if it has ended before. */
async function handedTo(receiver: UnixSocket, packet: Uint8Array, descriptor: number, deadline: number, path: string) {
  let taken = false
  try {
    checkUser(receiver, path)
    const missing = `the process that came to ${path} did not take the descriptor`
    const send = () => receiver.sendPacket(packet, [descriptor])
    if ((await lookUntil(deadline, send, 'sendmsg', missing)) === 'gone') return false
    taken = (await lookUntil(deadline, () => receiver.receiveByte(), 'recv', missing)) === 'came'
    return taken
  } finally {
    if (!taken) receiver.close()
  }
}

/** One end of the socket that passed a descriptor. The system closes it when its process ends. */
class SocketEnd implements Connection {
  private socket: UnixSocket | null

  constructor(socket: UnixSocket) {
    this.socket = socket
  }

  get open(): boolean {
    if (this.socket?.receiveByte() === 'gone') this.close()
    return this.socket !== null
  }

  close(): void {
    const { socket } = this
    this.socket = null
    socket?.close()
  }
}

/** The contents of a packet, confirmed to the sender; null if the sender is gone, which counts as not received. */
function accepted({ bytes, descriptors: [descriptor] }: Packet, sender: UnixSocket): ReceivedDescriptor | null {
  if (descriptor === undefined) throw new DescriptorError('recvmsg', 'EPROTO', 'what came has no descriptor')
  let kept = false
  try {
    if (bytes[0] !== MARK) throw new DescriptorError('recvmsg', 'EPROTO', 'what came is not from offerDescriptor')
    kept = sender.sendByte() === 'sent'
    return kept ? { descriptor, message: bytes.slice(1) } : null
  } finally {
    if (!kept) closeDescriptor(descriptor)
  }
}

/** Refuses a process of another user: the superuser can open the file too, and the socket knows its user. */
function checkUser(peer: UnixSocket, path: string): void {
  const [{ user }, own] = [peer.peer(), process.geteuid!()]
  if (user === own) return
  const detail = `the other process at ${path} is of user ${user}; run both as the same user, this one is ${own}`
  throw new DescriptorError('getsockopt', 'EPERM', detail)
}

/**
 * Calls `look` every few milliseconds until it returns a result. Throws DescriptorError ETIMEDOUT after `deadline`.
 */
async function lookUntil<T>(deadline: number, look: () => T | null, call: string, missing: string): Promise<T> {
  for (;;) {
    const result = look()
    if (result !== null) return result
    if (performance.now() >= deadline) throw new DescriptorError(call, 'ETIMEDOUT', `${missing} in time`)
    await pause(POLL_INTERVAL_MS)
  }
}

/** Throws TypeError or RangeError if `path` cannot be the path of a socket. */
export function checkPath(path: string): void {
  const bytes = Buffer.byteLength(text(path, 'path'))
  if (bytes === 0 || path.includes('\0')) throw new OutOfRangeError('path must name a file, without zero bytes')
  if (bytes <= MOST_PATH_BYTES) return
  throw new OutOfRangeError(
    `path must be at most ${MOST_PATH_BYTES} bytes, as sockets are named, not ${bytes}; choose a shorter folder`,
  )
}

function packetOf(message: Uint8Array): Uint8Array {
  if (!(message instanceof Uint8Array))
    throw new WrongTypeError(`message must be a Uint8Array, not ${describe(message)}`)
  if (message.length <= MOST_MESSAGE_BYTES) return Buffer.concat([Buffer.from([MARK]), message])
  throw new OutOfRangeError(
    `message must be at most ${MOST_MESSAGE_BYTES} bytes, not ${message.length}; send more otherwise`,
  )
}

/** The end of the wait, as milliseconds of `performance.now()`. */
export function deadlineOf({ timeoutMs = 10_000 }: PassOptions): number {
  return performance.now() + within(timeoutMs, 0, MOST_TIMEOUT_MS, 'timeoutMs')
}
