// Unix sockets that carry file descriptors to another process, which Node's sockets cannot do. descriptors.ts uses
// them. They call the C library by FFI, and no call waits. SOCK_SEQPACKET keeps the bytes of one call together.
// Structs are laid out by hand in one buffer, as on 64-bit Linux.

import { rmSync } from 'node:fs'
import { getSystemErrorMap } from 'node:util'
import { DescriptorError } from '../base/errors.js'
import type { Bytes } from '../base/typed-arrays.js'
import { fileDescriptor } from './arguments.js'
import { loadKoffi } from './koffi.js'

const AF_UNIX = 1
const SOCK_SEQPACKET = 5
const SOCK_NONBLOCK = 0x800
const SOCK_CLOEXEC = 0x80000
const SOL_SOCKET = 1
const SO_PEERCRED = 17
const SCM_RIGHTS = 1
const MSG_CTRUNC = 0x8
const MSG_TRUNC = 0x20
const MSG_DONTWAIT = 0x40
const MSG_NOSIGNAL = 0x4000
const MSG_CMSG_CLOEXEC = 0x40000000
const F_DUPFD_CLOEXEC = 1030

/** The longest path in the address of a socket, without the zero byte at its end. */
export const MOST_PATH_BYTES = 107

// Byte offsets in a packet, in the order of the buffer.
const HEADER = 0 // struct msghdr: name, its length, parts, how many, control, its length, flags: 56 bytes
const PART = HEADER + 56 // struct iovec: address, length
const CONTROL = PART + 16 // struct cmsghdr: length, level, type; then room for one descriptor only
const CONTROL_BYTES = 20
const DATA = CONTROL + 24

/** Functions of the C library; each returns -1 and sets errno if the system refuses. */
const PROTOTYPES = {
  socket: 'int socket(int domain, int type, int protocol)',
  fchmod: 'int fchmod(int fd, unsigned int mode)',
  bind: 'int bind(int fd, const void *address, unsigned int bytes)',
  listen: 'int listen(int fd, int backlog)',
  accept4: 'int accept4(int fd, void *address, void *bytes, int flags)',
  connect: 'int connect(int fd, const void *address, unsigned int bytes)',
  getsockopt: 'int getsockopt(int fd, int level, int name, void *value, void *bytes)',
  sendmsg: 'intptr_t sendmsg(int fd, const void *message, int flags)',
  recvmsg: 'intptr_t recvmsg(int fd, void *message, int flags)',
  send: 'intptr_t send(int fd, const void *data, size_t bytes, int flags)',
  recv: 'intptr_t recv(int fd, void *data, size_t bytes, int flags)',
  dup: 'int fcntl(int fd, int command, ...)',
  close: 'int close(int fd)',
  flock: 'int flock(int fd, int operation)',
  memfd_create: 'int memfd_create(const char *name, unsigned int flags)',
}

type Call = keyof typeof PROTOTYPES

/** Remedies for expected refusals, by error code. */
const REMEDIES: Record<string, string> = {
  EADDRINUSE: '; remove the file if no process uses it any more, or choose another path',
  EMFILE: '; close some, or raise what ulimit -n says',
  EACCES: '; choose a folder that this user owns',
  EPERM: '; a sandbox or a security policy forbids it',
}

/** The C library. */
interface System {
  readonly calls: Record<Call, (...args: (number | string | ArrayBufferView | null)[]) => number>
  addressOf(view: ArrayBufferView): bigint
  /** The name and the text of the error of the last call. */
  lastError(): [code: string, text: string]
}

let opened: System | null = null

/** Whether processes of this system can pass descriptors by these sockets. */
export function passesDescriptors(platform: string = process.platform, arch: string = process.arch): boolean {
  return platform === 'linux' && (arch === 'x64' || arch === 'arm64')
}

/** Opens the C library. Throws DescriptorError ENOTSUP on systems without such sockets. */
export function openSystem(platform: string = process.platform, arch: string = process.arch): System {
  if (!passesDescriptors(platform, arch)) {
    const detail = `descriptors are passed between processes on Linux (x64 and arm64), not on ${platform} ${arch}`
    throw new DescriptorError('socket', 'ENOTSUP', detail)
  }
  if (opened !== null) return opened
  const koffi = loadKoffi()
  const library = koffi.load(null)
  const calls = Object.fromEntries(Object.entries(PROTOTYPES).map(([call, text]) => [call, library.func(text)]))
  opened = {
    calls: calls as unknown as System['calls'],
    addressOf: koffi.address,
    lastError: () => getSystemErrorMap().get(-koffi.errno()) ?? [`errno ${koffi.errno()}`, 'an unknown error'],
  }
  return opened
}

/** A second descriptor of the same open file. Throws DescriptorError EBADF for a closed descriptor. */
export function duplicateDescriptor(descriptor: number): number {
  const system = openSystem()
  const copy = system.calls.dup(fileDescriptor(descriptor, 'descriptor'), F_DUPFD_CLOEXEC, 'int', 0)
  if (copy < 0) throw refusal(system, 'dup', `descriptor ${descriptor}`)
  return copy
}

/** Closes a file descriptor, received or exported. Throws DescriptorError EBADF for a closed descriptor. */
export function closeDescriptor(descriptor: number): void {
  const system = openSystem()
  const result = system.calls.close(fileDescriptor(descriptor, 'descriptor'))
  if (result < 0) throw refusal(system, 'close', `descriptor ${descriptor}`)
}

/** A received message with its descriptor. */
export interface Packet {
  readonly bytes: Bytes
  /** the receiver closes it */
  readonly descriptor: number
}

/** One socket. Methods return null instead of waiting, and 'gone' if the other end has closed. */
export class UnixSocket {
  private path: string | null = null

  private constructor(
    private readonly system: System,
    private readonly descriptor: number,
  ) {}

  /** Listens at `path`, which must not exist. The file is for this user only, and is removed with the socket. */
  static listenAt(path: string): UnixSocket {
    return UnixSocket.open(socket => {
      const { calls } = socket.system
      // Linux gives the file the mode of the socket, so other users never have access.
      socket.must('fchmod', calls.fchmod(socket.descriptor, 0o600), path)
      const address = addressOf(path)
      socket.must('bind', calls.bind(socket.descriptor, address, address.length), path)
      socket.path = path
      socket.must('listen', calls.listen(socket.descriptor, 8), path)
      return socket
    })
  }

  /** Connects to the socket that listens at `path`; null if there is no listener. */
  static connectTo(path: string): UnixSocket | null {
    return UnixSocket.open(socket => {
      const address = addressOf(path)
      if (socket.system.calls.connect(socket.descriptor, address, address.length) === 0) return socket
      if (!socket.failedWith('ENOENT', 'ECONNREFUSED', 'EAGAIN')) throw refusal(socket.system, 'connect', path)
      socket.close()
      return null
    })
  }

  private static open<Result>(prepare: (socket: UnixSocket) => Result): Result {
    const system = openSystem()
    const descriptor = system.calls.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
    if (descriptor < 0) throw refusal(system, 'socket', 'of the kind that passes descriptors')
    const socket = new UnixSocket(system, descriptor)
    try {
      return prepare(socket)
    } catch (error) {
      socket.close()
      throw error
    }
  }

  /** The next connection; null if there is none. */
  accept(): UnixSocket | null {
    const descriptor = this.system.calls.accept4(this.descriptor, null, null, SOCK_NONBLOCK | SOCK_CLOEXEC)
    if (descriptor >= 0) return new UnixSocket(this.system, descriptor)
    if (this.failedWith('EAGAIN')) return null
    throw refusal(this.system, 'accept', this.path ?? '')
  }

  /** The user id of the process at the other end. */
  peerUser(): number {
    const credentials = new Uint32Array(3) // struct ucred: process, user, group
    const bytes = new Uint32Array([credentials.byteLength])
    const result = this.system.calls.getsockopt(this.descriptor, SOL_SOCKET, SO_PEERCRED, credentials, bytes)
    this.must('getsockopt', result, 'who the other process is')
    return credentials[1]
  }

  /** Sends bytes and a descriptor. The other process gets its own descriptor of the same file. */
  sendPacket(bytes: Uint8Array, descriptor: number): 'gone' | 'sent' {
    const { memory, view } = this.packet(bytes.length)
    memory.set(bytes, DATA)
    view.setUint32(CONTROL, CONTROL_BYTES, true)
    view.setUint32(CONTROL + 8, SOL_SOCKET, true)
    view.setUint32(CONTROL + 12, SCM_RIGHTS, true)
    view.setUint32(CONTROL + 16, descriptor, true)
    if (this.system.calls.sendmsg(this.descriptor, memory, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 'sent'
    if (this.failedWith('EPIPE', 'ECONNRESET')) return 'gone'
    throw refusal(this.system, 'sendmsg', 'the descriptor')
  }

  /**
   * Receives a packet of at most `mostBytes`. Throws DescriptorError for other data, and keeps no descriptor of it.
   */
  receivePacket(mostBytes: number): Packet | 'gone' | null {
    const { memory, view } = this.packet(mostBytes)
    const bytes = this.system.calls.recvmsg(this.descriptor, memory, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)
    if (bytes === 0 || (bytes < 0 && this.failedWith('ECONNRESET'))) return 'gone'
    if (bytes < 0 && this.failedWith('EAGAIN')) return null
    this.must('recvmsg', bytes, 'the descriptor')
    const flags = view.getInt32(HEADER + 48, true)
    if (view.getUint32(HEADER + 40, true) < CONTROL_BYTES) {
      if ((flags & MSG_CTRUNC) === 0) throw new DescriptorError('recvmsg', 'EPROTO', 'what came has no descriptor')
      const detail = 'the descriptor was withheld: too many open files in this process, or a security policy forbids it'
      throw new DescriptorError('recvmsg', 'EMFILE', detail)
    }
    const descriptor = view.getInt32(CONTROL + 16, true)
    if ((flags & (MSG_TRUNC | MSG_CTRUNC)) !== 0) {
      closeDescriptor(descriptor)
      throw new DescriptorError('recvmsg', 'EMSGSIZE', `what came is more than ${mostBytes} bytes and one descriptor`)
    }
    return { bytes: memory.slice(DATA, DATA + bytes), descriptor }
  }

  /** Confirms a packet to the other end. */
  sendByte(): 'gone' | 'sent' {
    const result = this.system.calls.send(this.descriptor, Buffer.alloc(1), 1, MSG_DONTWAIT | MSG_NOSIGNAL)
    if (result < 0 && this.failedWith('EPIPE', 'ECONNRESET')) return 'gone'
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
    closeDescriptor(this.descriptor)
    if (this.path !== null) rmSync(this.path, { force: true })
  }

  /** Memory for a packet with `bytes` and a descriptor. Its address is valid while it is referenced. */
  private packet(bytes: number): { memory: Bytes; view: DataView } {
    const memory = new Uint8Array(new ArrayBuffer(DATA + bytes))
    const view = new DataView(memory.buffer)
    const address = this.system.addressOf(memory)
    view.setBigUint64(HEADER + 16, address + BigInt(PART), true)
    view.setUint32(HEADER + 24, 1, true)
    view.setBigUint64(HEADER + 32, address + BigInt(CONTROL), true)
    view.setUint32(HEADER + 40, CONTROL_BYTES, true)
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

/** The error of a call that the system has refused just now. */
export function refusal(system: System, call: string, what: string): DescriptorError {
  const [resultName, text] = system.lastError()
  return new DescriptorError(call, resultName, `${what}: ${text}${REMEDIES[resultName] ?? ''}`)
}

/** struct sockaddr_un: the family, then the path and a zero byte. */
function addressOf(path: string): Uint8Array {
  return Buffer.concat([Buffer.from([AF_UNIX, 0]), Buffer.from(path), Buffer.alloc(1)])
}
