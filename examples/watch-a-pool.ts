// Makes pools of a running program watchable, and asks for their figures as Prometheus does. While it runs, try
// `npx cuda-mempool top` in another terminal.
// In a clone: npm run build && node dist/examples/watch-a-pool.js

import { MiB, openDevice, tagged } from 'cuda-mempool'
import { prometheusText, serve } from 'cuda-mempool/live'

using device = openDevice('auto')
using memory = device.createPool({ maxPoolBytes: 64 * MiB })
const pool = tagged(memory)

await using server = await serve({ example: pool }, { port: 0 })
console.log(`watched by its socket, and in a browser: ${server.url !== null}`)

const weights = pool.inScope('weights', () => pool.allocate(20 * MiB))
pool.inScope('activations', () => pool.allocate(2 * MiB)).free()

const lines = prometheusText({ example: pool }).split('\n')
for (const line of lines) if (line.startsWith('cuda_mempool_tag_requested_bytes')) console.log(line)
weights.free()
