// The thread of the keepers. It loads the rest within a try: the thread that makes a pool waits without its event loop, and so
// would never hear of an error event.

import { workerData } from 'node:worker_threads'
import type { KeeperThreadData } from '../pool/shared/keep-pools.js'
import { ThreadStart } from '../threads/thread-start.js'

const data = workerData as KeeperThreadData
const start = new ThreadStart(data.first.start)
if (start.begin()) {
  try {
    const { keepPools } = await import('../pool/shared/keep-pools.js')
    keepPools(data, start)
  } catch (error) {
    start.fail(error)
  }
}
