import { isMainThread } from 'node:worker_threads'
import { newPoolListeners } from '../core/device/device.js'
import { HostPool } from '../core/pool/host/host-pool.js'
import { Pool } from '../core/pool/pool.js'

/**
 * With CUDA_MEMPOOL_SERVE=1 in the environment, every new pool of the main thread is served, without a line of code.
 * The server is loaded only then.
 */
export function serveIfAsked(): void {
  if (!isMainThread) return
  newPoolListeners.push(pool => {
    if (process.env['CUDA_MEMPOOL_SERVE'] !== '1' || !(pool instanceof Pool || pool instanceof HostPool)) return
    void import('./serve-all.js').then(({ serveNew }) => serveNew(pool))
  })
}
