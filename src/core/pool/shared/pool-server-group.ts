// A file of its own, because the proof of interleavings runs it without the thread around it.

import type { PoolServer } from './pool-server.js'

/** The pool servers of several pools in one thread. A pool server that fails leaves the others running. */
export class PoolServerGroup {
  private readonly servers = new Set<PoolServer>()

  /** `onFailed` runs before the threads that use a failed pool get the reason. */
  constructor(private readonly onFailed: () => void) {}

  get count(): number {
    return this.servers.size
  }

  add(server: PoolServer): void {
    this.servers.add(server)
  }

  /** A round of each pool server. Returns how many milliseconds none needs another, unless the doorbell rings. */
  serve(now = performance.now()): number {
    let restMs = Infinity
    for (const server of this.servers) {
      try {
        server.serve(now)
        if (server.closed) this.servers.delete(server)
        else restMs = Math.min(restMs, server.restMs(now))
      } catch (error) {
        this.servers.delete(server)
        this.onFailed()
        server.fail(error)
      }
    }
    return restMs
  }
}
