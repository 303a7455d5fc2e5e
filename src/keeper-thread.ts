// The thread of the keepers. It loads the rest within a try: the thread that makes a pool waits without its event loop, and so
// would never hear of an error event.

import { workerData } from 'node:worker_threads'
import { ThreadStart } from './base/thread-start.js'
import type { KeeperThreadData } from './pool/keep-pools.js'

const data = workerData as KeeperThreadData
const start = new ThreadStart(data.first.start)
if (start.begin()) {
  try {
    const { keepPools } = await import('./pool/keep-pools.js')
    keepPools(data, start)
  } catch (error) {
    start.fail(error)
  }
}
