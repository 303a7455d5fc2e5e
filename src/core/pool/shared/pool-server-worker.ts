// The worker that serves the shared pools of a device, as the thread that makes the pools sees it. It starts with the
// first pool. Without pools it sleeps at no cost, until the device is closed.

import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads'
import { codeFile } from '../../base/package-files.js'
import { Doorbell } from '../../threads/doorbell.js'
import { ThreadStart } from '../../threads/thread-start.js'
import type { ServedPoolState, ServerData, ServerThreadData } from './pool-server-loop.js'

interface Running {
  readonly port: MessagePort
  /** the start of its first pool */
  readonly start: ThreadStart
}

export class PoolServerWorker {
  /** rung by all threads that use its pools */
  readonly doorbell = new Doorbell()
  private running: Running | null = null

  /**
   * Hands over a new pool; call `await` next. `changes` takes the reserved bytes of the pool whenever they have
   * changed. Throws MissingFileError, in the name of `call`, when the worker's file is missing.
   */
  begin(call: string, state: ServedPoolState, changes: MessagePort | null = null): ThreadStart {
    const start = new ThreadStart()
    const data: ServerData = { state, start: start.buffer, changes }
    if (this.running === null || this.running.start.hasEnded) {
      this.running = { port: this.startThread(call, data), start }
      return start
    }
    start.runsIn(this.running.start)
    this.running.port.postMessage(data, portsOf(data))
    this.doorbell.ring()
    return start
  }

  /**
   * Returns when a pool is served; throws as `ThreadStart.await` does. A worker whose first pool fails is not used
   * again.
   */
  await(call: string, start: ThreadStart, meanwhile: () => void): void {
    try {
      start.await(call, meanwhile)
    } catch (error) {
      if (this.running?.start === start) this.end()
      throw error
    }
  }

  /** Ends the worker: no further pool comes. */
  end(): void {
    this.running?.port.postMessage(null)
    this.doorbell.ring()
    this.running = null
  }

  private startThread(call: string, first: ServerData): MessagePort {
    const file = codeFile('core/device/pool-server-thread.js', `${call}: the thread of a shared pool`)
    const { port1, port2 } = new MessageChannel()
    port1.unref()
    const data: ServerThreadData = { first, port: port2, doorbell: this.doorbell.buffer }
    const server = new Worker(file, { workerData: data, transferList: [port2, ...portsOf(first)], execArgv: [] })
    server.on('error', () => {}) // may come when no event loop runs; `start` carries the reason
    server.unref()
    return port1
  }
}

/** The ports of a message, which move to the worker. */
function portsOf({ changes }: ServerData): MessagePort[] {
  return changes === null ? [] : [changes]
}
