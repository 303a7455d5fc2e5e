// Tells whether another thread of the process has ended, even if it was terminated. The operating system knows, by
// the number of the thread and its start time, since numbers are reused. Only Linux is supported.
//
// Node keeps the system's thread of a terminated worker while one of its file or name look-ups is pending, though
// none of its JavaScript runs any more. But it closes the worker's sockets first. So each worker keeps one socket
// open, as a sign of life.

import { readFileSync, readlinkSync } from 'node:fs'
import { createServer } from 'node:net'
import { basename } from 'node:path'
import { isMainThread } from 'node:worker_threads'

const TASKS = '/proc/self/task'
const DESCRIPTORS = '/proc/self/fd'
const SOCKET = 'socket:['
const START_TIME = 19 // index behind the name of the thread, which may contain any characters
/** States of a thread that has ended, and that a debugger still holds. */
const ENDED = ['Z', 'X']

/** A socket that is open while a worker lives; zeros if there is none, as in the main thread. */
interface LifeSign {
  readonly descriptor: number
  readonly inode: number
}

const NO_SIGN: LifeSign = { descriptor: 0, inode: 0 }
let sign: LifeSign | null = null

/** The life sign of the calling thread, opened by the first call. */
export function lifeSign(): LifeSign {
  sign ??= isMainThread ? NO_SIGN : openSign()
  return sign
}

function openSign(): LifeSign {
  const server = createServer().on('error', () => {}) // for example no descriptor left: the number alone must do then
  server.listen({ path: `\0cuda-mempool ${process.pid} ${threadNumber()}`, exclusive: true })
  server.unref()
  const { _handle } = server as unknown as { _handle: { fd: number } | null } // missing in the type
  const inode = _handle === null ? 0 : inodeOf(_handle.fd)
  return _handle === null || inode === 0 ? NO_SIGN : { descriptor: _handle.fd, inode }
}

/**
 * As an int32; 0 for a descriptor that is no socket. No regular expression: V8 ends the process if it compiles one on
 * a full stack.
 */
function inodeOf(descriptor: number): number {
  const link = readlinkSync(`${DESCRIPTORS}/${descriptor}`)
  return link.startsWith(SOCKET) ? Number.parseInt(link.slice(SOCKET.length), 10) | 0 : 0
}

/** Whether a life sign is gone; false if the system does not tell. */
export function isGone({ descriptor, inode }: LifeSign): boolean {
  if (descriptor === 0) return false
  try {
    return inodeOf(descriptor) !== inode
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT'
  }
}

/** The reason why threads of this process cannot share pools; null if they can. */
export function sharingObstacle(
  versions: Readonly<Record<string, string | undefined>> = process.versions,
): string | null {
  const remedy = 'run the program with Node, or open the device and make a pool in each thread'
  if (versions['bun'] !== undefined) return `sharing between threads needs Node, not Bun; ${remedy}`
  if (versions['deno'] !== undefined) return `sharing between threads needs Node, not Deno; ${remedy}`
  if (process.platform !== 'linux') {
    return 'sharing between threads needs Linux, whose /proc tells which threads have ended'
  }
  if (threadNumber() !== 0) return null
  return 'sharing between threads needs to read /proc; under the permission model start Node with --allow-fs-read=/proc'
}

/** The system's number of the calling thread, unique while it lives; 0 if the system does not tell. */
export function threadNumber(): number {
  try {
    return Number(basename(readlinkSync('/proc/thread-self')))
  } catch {
    return 0
  }
}

/** The start time of a thread of this process, as an int32; 0 when no thread has that number. */
export function threadStart(thread: number): number {
  let stat: string
  try {
    stat = readFileSync(`${TASKS}/${thread}/stat`, 'latin1')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return 0
    throw error // for example when no file descriptor is left, which says nothing about the thread
  }
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return ENDED.includes(fields[0]) ? 0 : Number(fields[START_TIME]) | 0 || 1
}

/** Identifies the calling thread for `hasEnded`; empty if the system does not tell. */
export function markOfThread(): string {
  const thread = threadNumber()
  const { descriptor, inode } = lifeSign()
  return thread === 0 ? '' : `${thread} ${threadStart(thread)} ${descriptor} ${inode}`
}

/** Whether the thread of a mark has ended; false if the system does not tell. */
export function hasEnded(mark: string): boolean {
  if (mark === '') return false
  const [thread, start, descriptor, inode] = mark.split(' ').map(Number)
  return isOver(thread, start) || isGone({ descriptor, inode })
}

/** The same by number and start time; a start of 0 is unknown. */
export function isOver(thread: number, start: number): boolean {
  try {
    const now = threadStart(thread)
    return now === 0 || (start !== 0 && now !== start)
  } catch {
    return false
  }
}
