// With CUDA_MEMPOOL_SERVE=1 this is called for each new pool (serve-if-asked.ts).

import { type LiveServer, serve } from './serve.js'
import type { WatchedPool } from './watched-pools.js'

let server: Promise<LiveServer> | null = null

/** Serves a pool on the socket of this process. A failure is a warning: the program does not depend on it. */
export async function serveNew(pool: WatchedPool): Promise<void> {
  server ??= serve([])
  try {
    const live = await server
    live.add(pool)
  } catch (error) {
    process.emitWarning(`CUDA_MEMPOOL_SERVE: ${(error as Error).message}`, 'PoolWarning')
  }
}

/** Ends the server. The next pool opens a new server. */
export async function stopServing(): Promise<void> {
  const open = server
  server = null
  await (await open?.catch(() => null))?.close()
}
