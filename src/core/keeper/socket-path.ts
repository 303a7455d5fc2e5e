// The socket of a keeper: where it lies, and who may listen there. A lock beside the socket tells whether the process
// that made it still runs, so a socket that a killed keeper left behind is replaced.

import { closeSync, constants, openSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { DescriptorError, KeepError } from '../base/errors.js'
import { checkPath } from '../libraries/descriptors.js'
import { foreignFolder, foreignSocket, prepareFolder, socketFolder } from '../libraries/socket-folder.js'
import { openSystem, refusal } from '../libraries/system-calls.js'
import { UnixSocket } from '../libraries/unix-socket.js'

const LOCK_EX_NB = 2 | 4
/** Connections that may wait for the keeper. Linux has 4096 as its own limit. */
const BACKLOG = 4096

/** The socket that keepers and clients use unless a path is given. */
export function usualSocketPath(env: NodeJS.ProcessEnv = process.env): string {
  return join(socketFolder(env), 'keep.sock')
}

/** A socket that listens, and the lock of its place. */
export interface Place {
  readonly listener: UnixSocket
  /** descriptor of the lock, which holds as long as any process has it */
  readonly lock: number
}

/**
 * Listens at `path`, in a folder that only this user can open. Throws KeepError 'user' for another folder, and
 * DescriptorError EADDRINUSE if a keeper listens there.
 */
export function listenAlone(path: string): Place {
  checkPath(path)
  const obstacle = prepareFolder(dirname(path))
  if (obstacle !== null) throw new KeepError(`keep: ${obstacle}`, 'user')
  const lock = lockedPlace(path)
  try {
    const other = foreignSocket(path)
    if (other === null)
      rmSync(path) // a killed keeper left it
    else if (!other.startsWith('there is no')) throw new KeepError(`keep: ${other}; remove it`, 'user')
    return { listener: UnixSocket.listenAt(path, BACKLOG), lock }
  } catch (error) {
    closeSync(lock)
    throw error
  }
}

/**
 * Goes on with a socket that another process made for this one to listen at. Throws DescriptorError EADDRINUSE if a
 * keeper listens at `path`.
 */
export function listenAt(descriptor: number, path: string): Place {
  checkPath(path)
  return { lock: lockedPlace(path), listener: UnixSocket.listeningAt(descriptor, BACKLOG) }
}

/** From now on clients see this process as the keeper, and no longer the process that has passed the socket. */
export function nameListener({ listener }: Place): void {
  listener.listen(BACKLOG)
}

/** Why a client must not trust the socket at `path`; null if only this user can have made it. */
export function untrusted(path: string): KeepError | null {
  try {
    const obstacle = foreignFolder(dirname(path))
    return obstacle === null ? null : new KeepError(`keep: ${obstacle}; choose another path`, 'user')
  } catch {
    return null // without the folder there is no socket
  }
}

/**
 * The lock of the place of a socket. Throws DescriptorError EADDRINUSE if another process has it, and KeepError 'user'
 * if no file for it can be made.
 */
function lockedPlace(path: string): number {
  const file = `${path}.lock`
  const lock = openedLock(file)
  const system = openSystem()
  if (system.calls.flock(lock, LOCK_EX_NB) === 0) return lock
  const error = refusal(system, 'flock', path)
  closeSync(lock)
  if (error.resultName !== 'EAGAIN') throw error
  const fact = foreignSocket(path)?.startsWith('there is no')
    ? `a keeper runs without its socket, for ${path} was removed; end its process, which fuser ${file} shows`
    : `a keeper listens at ${path} already; end it, or take over from it with --replace`
  throw new DescriptorError('flock', 'EADDRINUSE', fact)
}

function openedLock(file: string): number {
  const { O_CREAT, O_RDWR, O_NOFOLLOW } = constants
  try {
    return openSync(file, O_CREAT | O_RDWR | O_NOFOLLOW, 0o600)
  } catch (error) {
    const remedy = 'remove what lies there, or give another path'
    throw new KeepError(`keep: cannot make the lock: ${(error as Error).message}; ${remedy}`, 'user')
  }
}
