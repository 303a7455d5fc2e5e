import { isMainThread } from 'node:worker_threads'
import { newPoolListeners } from '../core/pool/new-pools.js'
import { isWatchable } from './watched-pools.js'

/**
 * With CUDA_MEMPOOL_SERVE=1 in the environment, every new pool of the main thread is served, and what counts a part of
 * one, without a line of code. The server is loaded only then.
 */
export function serveIfAsked(): void {
  if (!isMainThread) return
  newPoolListeners.push(pool => {
    if (process.env['CUDA_MEMPOOL_SERVE'] !== '1' || !isWatchable(pool)) return
    void import('./serve-all.js').then(({ serveNew }) => serveNew(pool))
  })
}
