// How many files this process may have open, and how a keeper shares them among connections and kept memory.

import { readFileSync } from 'node:fs'

/** Connections, each with two descriptors. */
const USUAL_CONNECTIONS = 1000
/** Of the open files at most this share are for connections. */
const CONNECTIONS_SHARE = 1 / 4
/** For Node, libraries, the listening socket, and packets that are being read. */
const OTHERS = 400

export interface OpenFiles {
  /** the limit of the system */
  readonly most: number
  readonly connections: number
  /** of kept memory */
  readonly descriptors: number
}

/** The shares for a limit; by default that of this process, which Node raises to what the system allows. */
export function openFiles(most = limitOfProcess()): OpenFiles {
  const connections = Math.max(1, Math.min(USUAL_CONNECTIONS, Math.floor((most * CONNECTIONS_SHARE) / 2)))
  return { most, connections, descriptors: Math.max(1, most - 2 * connections - OTHERS) }
}

function limitOfProcess(): number {
  const [, soft] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
  return soft === undefined ? Number.MAX_SAFE_INTEGER : Number(soft)
}
