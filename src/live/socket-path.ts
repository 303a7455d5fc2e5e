// Where the sockets of served processes lie: in a folder that only their user can open, named by process id. A process
// that is killed leaves its socket behind; the next look removes it.

import { readdirSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { PoolError } from '../core/base/errors.js'
import {
  foreignFolder,
  foreignSocket,
  prepareFolder as prepare,
  socketFolder,
} from '../core/libraries/socket-folder.js'

export { foreignSocket, socketFolder }

const SOCKET_NAME = /^(\d+)(-\d+)?\.sock$/
/** A process tries this many names. */
const MOST_SERVERS = 1000

/** A socket in the folder. */
export interface ServedSocket {
  readonly path: string
  /** id of the process that made it */
  readonly pid: number
}

/** Makes the folder if needed. Throws PoolError unless it is this user's alone. */
export function prepareFolder(folder: string): void {
  const obstacle = prepare(folder)
  if (obstacle !== null) throw new PoolError(`serve: ${obstacle}, or give the option socket`)
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
