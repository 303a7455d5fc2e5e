// Locks of whole files, and files without a name, which Node does not offer. Simulated devices share memory by them.
// A lock belongs to an open file, not to a process: it stays while any process has a descriptor of that open file, a
// copy included. The system drops it with the last one, also when that process is killed.

import { DescriptorError } from '../base/errors.js'
import { loadKoffi } from './koffi.js'
import { openSystem } from './unix-socket.js'

const LOCK_EX = 2
const LOCK_NB = 4
const LOCK_UN = 8
const MFD_CLOEXEC = 1

interface Calls {
  flock(descriptor: number, operation: number): number
  memfd_create(name: string, flags: number): number
}

let opened: Calls | null = null

function open(): Calls {
  if (opened !== null) return opened
  openSystem() // refuses other systems
  const library = loadKoffi().load(null)
  opened = {
    flock: library.func('int flock(int fd, int operation)'),
    memfd_create: library.func('int memfd_create(const char *name, unsigned int flags)'),
  }
  return opened
}

/** Locks an open file; false if another open file has the lock. Throws DescriptorError. */
export function tryLock(descriptor: number): boolean {
  if (open().flock(descriptor, LOCK_EX | LOCK_NB) === 0) return true
  const [resultName, text] = openSystem().lastError()
  if (resultName === 'EAGAIN') return false
  throw new DescriptorError('flock', resultName, text)
}

/** Calls `work` while this open file has the lock, for which it waits. Throws DescriptorError. */
export function withLock<T>(descriptor: number, work: () => T): T {
  const { flock } = open()
  while (flock(descriptor, LOCK_EX) !== 0) {
    const [resultName, text] = openSystem().lastError()
    if (resultName !== 'EINTR') throw new DescriptorError('flock', resultName, text)
  }
  try {
    return work()
  } finally {
    flock(descriptor, LOCK_UN)
  }
}

/** A descriptor of a new file that has no name, and ends with its last descriptor. Throws DescriptorError. */
export function namelessFile(): number {
  const descriptor = open().memfd_create('cuda-mempool', MFD_CLOEXEC)
  if (descriptor >= 0) return descriptor
  const [resultName, text] = openSystem().lastError()
  throw new DescriptorError('memfd_create', resultName, text)
}
