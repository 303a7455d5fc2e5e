// Processes of a cluster on one GPU. Each opens the device for itself, and its pool has a share of the memory, so that
// all of them fit.
// docs/recipes/cluster.md explains it. In a clone: npm run build && node dist/examples/cluster.js

import cluster from 'node:cluster'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { MiB, openDevice } from 'cuda-mempool'

const PROCESSES = 2

if (cluster.isPrimary) {
  cluster.setupPrimary({ exec: fileURLToPath(import.meta.url) })
  const maxPoolBytes = `${80 / PROCESSES}%`
  const workers = Array.from({ length: PROCESSES }, () => cluster.fork({ GPU_MEMORY: maxPoolBytes }))
  const said = await Promise.all(workers.map(worker => once(worker, 'message')))
  for (const [message] of said) console.log(message)
  for (const worker of workers) worker.disconnect()
} else {
  using device = openDevice('auto')
  const share = process.env['GPU_MEMORY'] as `${number}%`
  using pool = device.createPool({ maxPoolBytes: share, leaveFreeBytes: 256 * MiB })
  using array = pool.upload(new Float32Array(1024).fill(cluster.worker!.id))
  process.send!(`process ${(await array.read())[0]} may take ${share}`)
}
