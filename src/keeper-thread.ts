// The thread of a pool's keeper. It loads the rest within a try: the thread that makes the pool waits without its event loop, and so
// would never hear of an error event.

import { workerData } from 'node:worker_threads'
import { ThreadStart } from './base/thread-start.js'
import type { KeeperData } from './pool/keep-pool.js'

const { state, start: buffer } = workerData as KeeperData
const start = new ThreadStart(buffer)
if (start.begin()) {
  try {
    const { keepPool } = await import('./pool/keep-pool.js')
    keepPool(state, () => start.succeed())
  } catch (error) {
    start.fail(error)
  }
}
