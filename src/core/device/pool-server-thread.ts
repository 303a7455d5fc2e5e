// The thread of the pool servers. It imports the rest within a try: the thread that makes a pool waits without its
// event loop, so it would never receive an error event.

import { workerData } from 'node:worker_threads'
import type { ServerThreadData } from '../pool/shared/pool-server-loop.js'
import { ThreadStart } from '../threads/thread-start.js'

const data = workerData as ServerThreadData
const start = new ThreadStart(data.first.start)
if (start.begin()) {
  try {
    const { servePools } = await import('../pool/shared/pool-server-loop.js')
    servePools(data, start)
  } catch (error) {
    start.fail(error)
  }
}
