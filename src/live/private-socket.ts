// A Unix socket that only this user can ever open. Node makes a socket with the rights that the umask leaves. So it is
// made in a folder of this user alone, and gets its own name when its rights are set.

import { chmodSync, linkSync, mkdtempSync, rmSync } from 'node:fs'
import type { Server } from 'node:http'
import { dirname, join } from 'node:path'

/** Linux allows no longer names of sockets. */
export const MOST_PATH_BYTES = 107
const FOLDER = '.'
const NAME = 's'

/** The bytes of the longest name that the socket at `path` has while it is made. */
export function pathBytes(path: string): number {
  const made = join(dirname(path), `${FOLDER}XXXXXX`, NAME)
  return Math.max(Buffer.byteLength(path), Buffer.byteLength(made))
}

/** Listens at `path`, where nothing may be yet. Closing the server does not remove the socket. */
export async function listenPrivately(server: Server, path: string): Promise<void> {
  const folder = mkdtempSync(join(dirname(path), FOLDER))
  const made = join(folder, NAME)
  try {
    await listening(server, { path: made })
    chmodSync(made, 0o600)
    linkSync(made, path)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Resolves when a server listens. Rejects with the error of the system. */
export function listening(server: Server, where: { path: string } | { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ ...where, exclusive: true }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}
