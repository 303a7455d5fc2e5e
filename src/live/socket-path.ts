// Where the sockets of served processes lie: in a folder that only their user can open, named by process id. A process
// that is killed leaves its socket behind; the next look removes it.

import { lstatSync, mkdirSync, readdirSync, rmSync, type Stats } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { PoolError } from '../core/base/errors.js'

const OTHERS = 0o077
const SOCKET_NAME = /^(\d+)(-\d+)?\.sock$/
/** A process tries this many names. */
const MOST_SERVERS = 1000

/** A socket in the folder. */
export interface ServedSocket {
  readonly path: string
  /** id of the process that made it */
  readonly pid: number
}

/** The folder of this user's sockets; it need not exist. */
export function socketFolder(env: NodeJS.ProcessEnv = process.env): string {
  const runtime = env['XDG_RUNTIME_DIR']
  if (runtime !== undefined && isAbsolute(runtime)) return join(runtime, 'cuda-mempool')
  return join(tmpdir(), `cuda-mempool-${userId()}`)
}

/** Makes the folder if needed. Throws PoolError unless it is this user's alone. */
export function prepareFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
  } catch (error) {
    throw new PoolError(
      `serve: cannot make the folder ${folder} for the socket: ${(error as Error).message}; set XDG_RUNTIME_DIR, or give the option socket`,
    )
  }
  const obstacle = foreignFolder(folder)
  if (obstacle !== null) throw new PoolError(`serve: ${obstacle}; remove it, or give the option socket`)
}

/** Why a folder cannot be trusted; null if it is this user's alone. */
function foreignFolder(folder: string): string | null {
  const stats = lstatSync(folder)
  if (!stats.isDirectory()) return `${folder} is no folder`
  if (stats.uid !== userId()) return `${folder} belongs to another user`
  return (stats.mode & OTHERS) === 0 ? null : `${folder} is open to other users`
}

/** Why a socket cannot be trusted; null for a socket of this user. */
export function foreignSocket(path: string): string | null {
  let stats: Stats
  try {
    stats = lstatSync(path)
  } catch {
    return `there is no socket ${path}`
  }
  if (!stats.isSocket()) return `${path} is no socket`
  return stats.uid === userId() ? null : `${path} belongs to another user`
}

/** Whether a process listens on a socket. */
function isListening(path: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}

/** A free name for a socket of this process. A dead socket of that name is removed: process ids come again. */
export async function freeSocketPath(folder: string, pid = process.pid): Promise<string> {
  for (let number = 1; number <= MOST_SERVERS; number++) {
    const path = join(folder, `${pid}${number === 1 ? '' : `-${number}`}.sock`)
    if (await clear(path)) return path
  }
  throw new PoolError(`serve: ${folder} has ${MOST_SERVERS} sockets of this process; close some servers`)
}

/** Removes a dead socket; false if a process listens on it, or it is something else. */
export async function clear(path: string): Promise<boolean> {
  const obstacle = foreignSocket(path)
  if (obstacle?.startsWith('there is no') === true) return true
  if (obstacle !== null || (await isListening(path))) return false
  rmSync(path, { force: true })
  return true
}

/** The sockets of this user that a process listens on; dead ones are removed. */
export async function servedSockets(folder = socketFolder()): Promise<ServedSocket[]> {
  let names: string[]
  try {
    if (foreignFolder(folder) !== null) return []
    names = readdirSync(folder)
  } catch {
    return [] // nothing was served yet
  }
  const found: ServedSocket[] = []
  for (const name of names.sort()) {
    const pid = Number(SOCKET_NAME.exec(name)?.[1] ?? Number.NaN)
    const path = join(folder, name)
    if (Number.isNaN(pid) || foreignSocket(path) !== null) continue
    if (await isListening(path)) found.push({ path, pid })
    else rmSync(path, { force: true })
  }
  return found
}

function userId(): number {
  return process.getuid?.() ?? -1
}
