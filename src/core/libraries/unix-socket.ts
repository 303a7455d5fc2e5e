// Unix sockets that carry file descriptors to another process, which Node's sockets cannot do. No call waits.
// SOCK_SEQPACKET keeps the bytes and the descriptors of one call together. Structs are laid out by hand in one buffer,
// as on 64-bit Linux.

import { closeSync, rmSync } from 'node:fs'
import { isMainThread } from 'node:worker_threads'
import { DescriptorError } from '../base/errors.js'
import type { Bytes } from '../base/typed-arrays.js'
import { closeDescriptor, movedToThread, openSystem, refusal, type System } from './system-calls.js'

const AF_UNIX = 1
const SOCK_STREAM = 1
const SOCK_DGRAM = 2
const SOCK_SEQPACKET = 5
const SOCK_NONBLOCK = 0x800
const SOCK_CLOEXEC = 0x80000
const F_SETFL = 4
const SOL_SOCKET = 1
const SO_PEERCRED = 17
const SCM_RIGHTS = 1
const MSG_CTRUNC = 0x8
const MSG_TRUNC = 0x20
const MSG_DONTWAIT = 0x40
const MSG_NOSIGNAL = 0x4000
const MSG_CMSG_CLOEXEC = 0x40000000

/** The longest path in the address of a socket, without the zero byte at its end. */
export const MOST_PATH_BYTES = 107
/** The most descriptors in a packet. Linux allows 253. */
export const MOST_DESCRIPTORS = 250

// Byte offsets in a packet, in the order of the buffer.
const HEADER = 0 // struct msghdr: name, its length, parts, how many, control, its length, flags: 56 bytes
const PART = HEADER + 56 // struct iovec: address, length
const CONTROL = PART + 16 // struct cmsghdr: length, level, type: 16 bytes; then the descriptors
const CONTROL_HEAD_BYTES = 16
const DATA = CONTROL + CONTROL_HEAD_BYTES + 4 * MOST_DESCRIPTORS

/** A received message with its descriptors. */
export interface Packet {
  readonly bytes: Bytes
  /** the receiver closes them */
  readonly descriptors: readonly number[]
}

/** The process at the other end of a socket. */
export interface Peer {
  /** 0 if it lies in another PID namespace */
  readonly pid: number
  readonly user: number
}

/** One socket. Methods return null instead of waiting, and 'gone' if the other end has closed. */
export class UnixSocket {
  private constructor(
    private readonly system: System,
    readonly descriptor: number,
    /** of a socket that listens: the file that is removed with it */
    private path: string | null = null,
    private readonly closeIt = closeDescriptor,
  ) {}

  /**
   * Listens at `path`, which must not exist; `backlog` connections may wait. The file is for this user only, and is
   * removed with the socket.
   */
  static listenAt(path: string, backlog = 8): UnixSocket {
    return UnixSocket.open(socket => {
      const { calls } = socket.system
      // Linux gives the file the mode of the socket, so other users never have access.
      socket.must('fchmod', calls.fchmod(socket.descriptor, 0o600), path)
      const address = addressOf(path)
      socket.must('bind', calls.bind(socket.descriptor, address, address.length), path)
      socket.path = path
      socket.must('listen', calls.listen(socket.descriptor, backlog), path)
      return socket
    })
  }

  /** Connects to the socket that listens at `path`, and ends with this thread; null if there is no listener. */
  static connectTo(path: string): UnixSocket | null {
    const socket = UnixSocket.connect(path, addressOf(path), SOCK_SEQPACKET)
    if (isMainThread || socket === null) return socket
    return new UnixSocket(socket.system, movedToThread(socket.descriptor), null, closeSync)
  }

  /** A socket that sends to the datagram socket at `path`, or at the abstract address `@name`; null without it. */
  static sendingTo(path: string): UnixSocket | null {
    const address = addressOf(path)
    if (!path.startsWith('@')) return UnixSocket.connect(path, address, SOCK_DGRAM)
    address[2] = 0
    return UnixSocket.connect(path, address.subarray(0, -1), SOCK_DGRAM) // all bytes are of the name
  }

  /** Goes on to listen at a socket that another process has bound: from now on clients see this one as their peer. */
  static listeningAt(descriptor: number, backlog: number): UnixSocket {
    const socket = UnixSocket.of(descriptor)
    socket.must('fcntl', socket.system.calls.fcntl(descriptor, F_SETFL, 'int', SOCK_NONBLOCK), 'not to wait')
    socket.listen(backlog)
    return socket
  }

  /** A socket that another process has opened; `path` is its file, if this process is to remove it. */
  static of(descriptor: number, path: string | null = null): UnixSocket {
    return new UnixSocket(openSystem(), descriptor, path)
  }

  /** Listens again: peers see the process that has done so last. */
  listen(backlog: number): void {
    this.must('listen', this.system.calls.listen(this.descriptor, backlog), 'again')
  }

  private static connect(path: string, address: Uint8Array, kind: number): UnixSocket | null {
    return UnixSocket.open(socket => {
      if (socket.system.calls.connect(socket.descriptor, address, address.length) === 0) return socket
      if (!socket.failedWith('ENOENT', 'ECONNREFUSED', 'EAGAIN')) throw refusal(socket.system, 'connect', path)
      socket.close()
      return null
    }, kind)
  }

  private static open<Result>(prepare: (socket: UnixSocket) => Result, kind = SOCK_SEQPACKET): Result {
    const system = openSystem()
    const descriptor = system.calls.socket(AF_UNIX, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
    if (descriptor < 0) throw refusal(system, 'socket', 'of the kind that passes descriptors')
    const socket = new UnixSocket(system, descriptor)
    try {
      return prepare(socket)
    } catch (error) {
      socket.close()
      throw error
    }
  }

  /** The next connection; null without one. */
  accept(): UnixSocket | null {
    const descriptor = this.system.calls.accept4(this.descriptor, null, null, SOCK_NONBLOCK | SOCK_CLOEXEC)
    if (descriptor >= 0) return new UnixSocket(this.system, descriptor)
    if (this.failedWith('EAGAIN', 'ECONNABORTED')) return null
    throw refusal(this.system, 'accept', this.path ?? '')
  }

  /** The process at the other end, and its user. */
  peer(): Peer {
    const credentials = new Uint32Array(3) // struct ucred: process, user, group
    const bytes = new Uint32Array([credentials.byteLength])
    const result = this.system.calls.getsockopt(this.descriptor, SOL_SOCKET, SO_PEERCRED, credentials, bytes)
    this.must('getsockopt', result, 'who the other process is')
    return { pid: credentials[0], user: credentials[1] }
  }

  /**
   * Sends bytes and descriptors, at most `MOST_DESCRIPTORS`. The other process gets its own descriptors of the same
   * files. Null if the other process has not read what was sent before.
   */
  sendPacket(bytes: Uint8Array, descriptors: readonly number[]): 'gone' | 'sent' | null {
    const { memory, view } = this.packet(bytes.length, descriptors.length)
    memory.set(bytes, DATA)
    view.setUint32(CONTROL, CONTROL_HEAD_BYTES + 4 * descriptors.length, true)
    view.setUint32(CONTROL + 4, 0, true)
    view.setUint32(CONTROL + 8, SOL_SOCKET, true)
    view.setUint32(CONTROL + 12, SCM_RIGHTS, true)
    for (const [index, descriptor] of descriptors.entries()) {
      view.setInt32(CONTROL + CONTROL_HEAD_BYTES + 4 * index, descriptor, true)
    }
    if (this.system.calls.sendmsg(this.descriptor, memory, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 'sent'
    if (this.failedWith('EPIPE', 'ECONNRESET')) return 'gone'
    if (this.failedWith('EAGAIN')) return null
    throw refusal(this.system, 'sendmsg', descriptors.length === 1 ? 'the descriptor' : 'the descriptors')
  }

  /**
   * Receives a packet of at most `mostBytes` and `mostDescriptors`. Throws DescriptorError for other data, and keeps no
   * descriptor of it.
   */
  receivePacket(mostBytes: number, mostDescriptors: number): Packet | 'gone' | null {
    const { memory, view } = this.packet(mostBytes, mostDescriptors)
    const receive = () => this.system.calls.recvmsg(this.descriptor, memory, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)
    let bytes = receive()
    // Linux says so once if the other end closed with something unread, before the packets that it had sent.
    if (bytes < 0 && this.failedWith('ECONNRESET')) bytes = receive()
    if (bytes === 0 || (bytes < 0 && this.failedWith('ECONNRESET'))) return 'gone'
    if (bytes < 0 && this.failedWith('EAGAIN')) return null
    this.must('recvmsg', bytes, 'the descriptor')
    const flags = view.getInt32(HEADER + 48, true)
    const controlBytes = view.getUint32(HEADER + 40, true)
    const count = controlBytes < CONTROL_HEAD_BYTES ? 0 : (view.getUint32(CONTROL, true) - CONTROL_HEAD_BYTES) >> 2
    const descriptors = Array.from({ length: count }, (_, index) =>
      view.getInt32(CONTROL + CONTROL_HEAD_BYTES + 4 * index, true),
    )
    if ((flags & (MSG_TRUNC | MSG_CTRUNC)) === 0) return { bytes: memory.slice(DATA, DATA + bytes), descriptors }
    descriptors.forEach(closeDescriptor)
    if ((flags & MSG_CTRUNC) !== 0 && count < mostDescriptors) {
      const detail = `${mostDescriptors === 1 ? 'the descriptor was' : 'descriptors were'} withheld: too many open files in this process, or a security policy forbids it`
      throw new DescriptorError('recvmsg', 'EMFILE', detail)
    }
    const most = mostDescriptors === 1 ? 'one descriptor' : `${mostDescriptors} descriptors`
    throw new DescriptorError('recvmsg', 'EMSGSIZE', `what came is more than ${mostBytes} bytes and ${most}`)
  }

  /** Confirms a packet to the other end. Null if the other process has not read what was sent before. */
  sendByte(): 'gone' | 'sent' | null {
    const result = this.system.calls.send(this.descriptor, Buffer.alloc(1), 1, MSG_DONTWAIT | MSG_NOSIGNAL)
    if (result < 0 && this.failedWith('EPIPE', 'ECONNRESET')) return 'gone'
    if (result < 0 && this.failedWith('EAGAIN')) return null
    this.must('send', result, 'the confirmation')
    return 'sent'
  }

  /** Receives a confirmation. */
  receiveByte(): 'came' | 'gone' | null {
    const result = this.system.calls.recv(this.descriptor, Buffer.alloc(1), 1, MSG_DONTWAIT)
    if (result > 0) return 'came'
    if (result === 0 || this.failedWith('ECONNRESET')) return 'gone'
    if (this.failedWith('EAGAIN')) return null
    throw refusal(this.system, 'recv', 'the confirmation')
  }

  /** Closes the socket, and removes its file. */
  close(): void {
    this.closeIt(this.descriptor)
    if (this.path !== null) rmSync(this.path, { force: true })
  }

  /** Closes the socket of a listener whose file another process goes on to serve. */
  leaveFile(): void {
    this.path = null
    this.close()
  }

  /** Memory for a packet. Its address is valid while it is referenced. */
  private packet(bytes: number, descriptors: number): { memory: Bytes; view: DataView } {
    const memory = new Uint8Array(new ArrayBuffer(DATA + bytes))
    const view = new DataView(memory.buffer)
    const address = this.system.addressOf(memory)
    view.setBigUint64(HEADER + 16, address + BigInt(PART), true)
    view.setUint32(HEADER + 24, 1, true)
    if (descriptors > 0) {
      view.setBigUint64(HEADER + 32, address + BigInt(CONTROL), true)
      view.setUint32(HEADER + 40, CONTROL_HEAD_BYTES + 4 * descriptors, true)
    }
    view.setBigUint64(PART, address + BigInt(DATA), true)
    view.setUint32(PART + 8, bytes, true)
    return { memory, view }
  }

  private must(call: string, result: number, what: string): void {
    if (result < 0) throw refusal(this.system, call, what)
  }

  private failedWith(...codes: string[]): boolean {
    return codes.includes(this.system.lastError()[0])
  }
}

/** Two connected sockets of this process, of the kind that Node's own sockets can be made of. */
export function streamPair(): [one: number, other: number] {
  const system = openSystem()
  const pair = new Int32Array(2)
  const result = system.calls.socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)
  if (result < 0) throw refusal(system, 'socketpair', 'of this process')
  return [pair[0], pair[1]]
}

/** struct sockaddr_un: the family, then the path and a zero byte. */
function addressOf(path: string): Uint8Array {
  return Buffer.concat([Buffer.from([AF_UNIX, 0]), Buffer.from(path), Buffer.alloc(1)])
}
