// Where the sockets of a user's processes lie: in a folder that only this user can open.

import { lstatSync, mkdirSync, type Stats } from 'node:fs'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'

const OTHERS = 0o077

/** The folder of this user's sockets; it need not exist. */
export function socketFolder(env: NodeJS.ProcessEnv = process.env): string {
  const runtime = env['XDG_RUNTIME_DIR']
  if (runtime !== undefined && isAbsolute(runtime)) return join(runtime, 'cuda-mempool')
  return join(tmpdir(), `cuda-mempool-${userId()}`)
}

/** Makes the folder if needed. Why it cannot be used, with a remedy; null if it is this user's alone. */
export function prepareFolder(folder: string): string | null {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
  } catch (error) {
    return `cannot make the folder ${folder} for the socket: ${(error as Error).message}; set XDG_RUNTIME_DIR`
  }
  const obstacle = foreignFolder(folder)
  return obstacle === null ? null : `${obstacle}; use a folder that only you can open (mkdir -m 700)`
}

/** Why a folder cannot be trusted; null if it is this user's alone. */
export function foreignFolder(folder: string): string | null {
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

/** The user of files that this process makes; Windows has no such ids. */
function userId(): number {
  return process.getuid?.() ?? -1
}
