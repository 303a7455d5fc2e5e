// The calls of the C library for sockets that carry descriptors, and for waiting for them. Struct layouts are those of
// 64-bit Linux. The library is opened with the first socket.

import { openSync } from 'node:fs'
import { getSystemErrorMap } from 'node:util'
import { DescriptorError } from '../base/errors.js'
import { fileDescriptor } from './arguments.js'
import { loadKoffi } from './koffi.js'

const F_DUPFD_CLOEXEC = 1030
const O_CLOEXEC = 0x80000

/** Functions of the C library; each returns -1 and sets errno if the system refuses. */
const PROTOTYPES = {
  socket: 'int socket(int domain, int type, int protocol)',
  socketpair: 'int socketpair(int domain, int type, int protocol, void *pair)',
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
  fcntl: 'int fcntl(int fd, int command, ...)',
  dup3: 'int dup3(int from, int to, int flags)',
  close: 'int close(int fd)',
  poll: 'int poll(void *descriptors, unsigned long count, int timeout)',
  eventfd: 'int eventfd(unsigned int count, int flags)',
  flock: 'int flock(int fd, int operation)',
  madvise: 'int madvise(uintptr_t address, size_t bytes, int advice)',
  memfd_create: 'int memfd_create(const char *name, unsigned int flags)',
}

type Call = keyof typeof PROTOTYPES
type Argument = number | string | ArrayBufferView | null
interface Callable {
  (...args: Argument[]): number
  /** Calls it in one of libuv's threads. */
  async(...args: [...Argument[], (error: Error | null, result: number) => void]): void
}

/** Remedies for expected refusals, by error code. */
const REMEDIES: Record<string, string> = {
  EADDRINUSE: '; remove the file if no process uses it any more, or choose another path',
  EMFILE: '; close some, or raise what ulimit -n says',
  EACCES: '; choose a folder that this user owns',
  EPERM: '; a sandbox or a security policy forbids it',
}

/** The C library. */
export interface System {
  readonly calls: Record<Call, Callable>
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
  const copy = system.calls.fcntl(fileDescriptor(descriptor, 'descriptor'), F_DUPFD_CLOEXEC, 'int', 0)
  if (copy < 0) throw refusal(system, 'dup', `descriptor ${descriptor}`)
  return copy
}

/**
 * Moves an open file of a worker to a descriptor that ends with this thread: Node closes what a worker has opened by
 * `openSync`, unless its option trackUnmanagedFds is false. The caller closes it by `closeSync`: so Node forgets it.
 */
export function movedToThread(descriptor: number): number {
  const system = openSystem()
  const moved = openSync('/dev/null', 'r')
  if (system.calls.dup3(descriptor, moved, O_CLOEXEC) < 0) throw refusal(system, 'dup', `descriptor ${descriptor}`)
  closeDescriptor(descriptor)
  return moved
}

/** Closes a file descriptor, received or exported. Throws DescriptorError EBADF for a closed descriptor. */
export function closeDescriptor(descriptor: number): void {
  const system = openSystem()
  const result = system.calls.close(fileDescriptor(descriptor, 'descriptor'))
  if (result < 0) throw refusal(system, 'close', `descriptor ${descriptor}`)
}

/** The error for a call that the system has refused just now. */
export function refusal(system: System, call: string, what: string): DescriptorError {
  const [resultName, text] = system.lastError()
  return new DescriptorError(call, resultName, `${what}: ${text}${REMEDIES[resultName] ?? ''}`)
}
