// An open file of this process for another one, on Linux: GPU memory is shared between processes as a file descriptor,
// and Node has no means to pass one. The sender listens at a path that both know, the receiver connects to it, and
// takes the descriptor together with a message; the sender hears that it was taken. Either may come first. Both look
// again every few milliseconds, so neither holds up its process.

import { setTimeout as pause } from 'node:timers/promises'
import { DescriptorError } from '../base/errors.js'
import { text, within } from './arguments.js'
import { closeDescriptor, duplicateDescriptor, MOST_PATH_BYTES, type Packet, UnixSocket } from './unix-socket.js'

export { closeDescriptor }

/** The largest message that goes with a descriptor. */
export const MOST_MESSAGE_BYTES = 65536

const LOOK_EVERY_MS = 5
const MOST_TIMEOUT_MS = 2 ** 31 - 1
/** Begins every message, so that one of no bytes is not taken for the end, nor a foreign one for ours. */
const MARK = 0xfd

export interface PassOptions {
  /** how long to wait for the other process; 10 seconds when not given */
  readonly timeoutMs?: number
}

export interface ReceivedDescriptor {
  /** this process's own, to be closed with `closeDescriptor` */
  readonly descriptor: number
  readonly message: Uint8Array<ArrayBuffer>
}

/** What is left between two processes when a descriptor has been passed: each end tells whether the other still holds on. */
export interface Connection {
  /** false once the other process has closed its end, or has ended, or this end is closed */
  readonly open: boolean
  /** A second close does nothing. */
  close(): void
}

/**
 * Passes an open file to one other process of the same user, and stays connected with it. That process calls `acceptDescriptor` with the
 * same path. The call creates a socket file at `path`, which must not exist, and removes it again. The descriptor stays the
 * caller's, who may close it once this function has returned its promise. The promise is fulfilled when the other process has a
 * descriptor of its own. It rejects with a DescriptorError, and leaves nothing behind. Its codes: ETIMEDOUT, nobody came; EPERM, a
 * process of another user came; EBADF, the descriptor is not open; ENOTSUP, this is not Linux; or the system's own.
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
        await pause(LOOK_EVERY_MS) // that process has ended; there may be a next one
      }
    } finally {
      listener.close()
    }
  } finally {
    closeDescriptor(copy)
  }
}

/**
 * Takes the descriptor that another process of the same user passes at `path` with `offerDescriptor`, and stays connected with it. It
 * rejects with a DescriptorError, and leaves nothing open. Its codes: ETIMEDOUT, nothing came; EPERM, a process of another user
 * sends; EMFILE, this process has too many open files; EPROTO, another program listens at `path`; ENOTSUP, this is not Linux; or
 * the system's own.
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
      const receive = () => sender.receivePacket(1 + MOST_MESSAGE_BYTES)
      const packet = await lookUntil(deadline, receive, 'recvmsg', `the process at ${path} sent nothing`)
      if (packet !== 'gone') received = accepted(packet, sender)
      if (received !== null) return { ...received, connection: new SocketEnd(sender) }
    } finally {
      if (received === null) sender.close()
    }
    await pause(LOOK_EVERY_MS) // that sender has served another process or ended; there may be a next one
  }
}

/** Sends to a process that has come, and hears whether it took the descriptor; false when it has ended before. */
async function handedTo(receiver: UnixSocket, packet: Uint8Array, descriptor: number, deadline: number, path: string) {
  let taken = false
  try {
    checkUser(receiver, path)
    if (receiver.sendPacket(packet, descriptor) === 'gone') return false
    const missing = `the process that came to ${path} did not take the descriptor`
    taken = (await lookUntil(deadline, () => receiver.receiveByte(), 'recv', missing)) === 'came'
    return taken
  } finally {
    if (!taken) receiver.close()
  }
}

/** One end of the socket that a descriptor went over: the system closes it with the process. */
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

/** What a packet holds, confirmed to the sender; null when the sender is gone and takes it as not received. */
function accepted({ bytes, descriptor }: Packet, sender: UnixSocket): ReceivedDescriptor | null {
  let kept = false
  try {
    if (bytes[0] !== MARK) throw new DescriptorError('recvmsg', 'EPROTO', 'what came is not from offerDescriptor')
    kept = sender.sendByte() === 'sent'
    return kept ? { descriptor, message: bytes.slice(1) } : null
  } finally {
    if (!kept) closeDescriptor(descriptor)
  }
}

/** Refuses a process of another user: the file's mode keeps all out but the superuser, and the socket tells who it is. */
function checkUser(peer: UnixSocket, path: string): void {
  const [user, own] = [peer.peerUser(), process.geteuid!()]
  if (user === own) return
  const detail = `the other process at ${path} is of user ${user}; run both as the same user, this one is ${own}`
  throw new DescriptorError('getsockopt', 'EPERM', detail)
}

/** Looks until something is found, every few milliseconds; DescriptorError ETIMEDOUT when that is not before `deadline`. */
export async function lookUntil<T>(deadline: number, look: () => T | null, call: string, missing: string): Promise<T> {
  for (;;) {
    const result = look()
    if (result !== null) return result
    if (performance.now() >= deadline) throw new DescriptorError(call, 'ETIMEDOUT', `${missing} in time`)
    await pause(LOOK_EVERY_MS)
  }
}

/** Refuses what cannot be the path of a socket. */
export function checkPath(path: string): void {
  const bytes = Buffer.byteLength(text(path, 'path'))
  if (bytes === 0 || path.includes('\0')) throw new RangeError('path must name a file, without zero bytes')
  if (bytes <= MOST_PATH_BYTES) return
  throw new RangeError(
    `path must be at most ${MOST_PATH_BYTES} bytes, as sockets are named, not ${bytes}; choose a shorter folder`,
  )
}

function packetOf(message: Uint8Array): Uint8Array {
  if (!(message instanceof Uint8Array)) throw new TypeError(`message must be a Uint8Array, not a ${typeof message}`)
  if (message.length <= MOST_MESSAGE_BYTES) return Buffer.concat([Buffer.from([MARK]), message])
  throw new RangeError(
    `message must be at most ${MOST_MESSAGE_BYTES} bytes, not ${message.length}; send more otherwise`,
  )
}

/** When the waiting ends, by the clock of `performance.now()`. */
export function deadlineOf({ timeoutMs = 10_000 }: PassOptions): number {
  return performance.now() + within(timeoutMs, 0, MOST_TIMEOUT_MS, 'timeoutMs')
}
