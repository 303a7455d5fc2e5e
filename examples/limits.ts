// How much memory a pool may take: what the platform lets this process have, or a share of the device. And how idle
// memory goes back.
// docs/recipes/limits.md explains it. In a clone: npm run build && node dist/examples/limits.js

import { type ByteSize, type Device, formatBytes, openDevice } from 'cuda-mempool'

/** The limit for a pool that has the device, or this process's part of it, for itself. */
function limitFor(device: Device, env: NodeJS.ProcessEnv): ByteSize {
  // Your own variable, for schedulers that share a GPU and name no limit: '20GiB' or '25%'.
  if (env['GPU_MEMORY']) return env['GPU_MEMORY'] as ByteSize
  // Slurm with --gres=mps:25, where a quarter of the threads should take a quarter of the memory.
  const percent = env['CUDA_MPS_ACTIVE_THREAD_PERCENTAGE']
  if (percent) return `${Number(percent)}%`
  return Math.floor(0.9 * device.memoryLimit) // MPS, HAMi and KAI are known; a MIG instance is a device of its size
}

for (const limit of ['3000m', 'none', '0']) {
  process.env['CUDA_DEVICE_MEMORY_LIMIT_0'] = limit // as HAMi sets it
  using device = openDevice('simulated')
  const pool = device.createPool({ maxPoolBytes: limitFor(device, {}) })
  console.log(`${limit}: ${formatBytes(pool.maxPoolBytes)} of ${formatBytes(device.memoryLimit)}`)
}
delete process.env['CUDA_DEVICE_MEMORY_LIMIT_0']

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: limitFor(device, process.env), leaveFreeBytes: '256MiB' })
const { freeBytes, totalBytes } = device.memoryInfo()
console.log(`limit below the device's memory: ${pool.maxPoolBytes < totalBytes}, some is free: ${freeBytes > 0}`)
pool.allocate('64MiB').free()
console.log(`kept for the next request: ${formatBytes(pool.stats().reservedBytes)}`)
pool.trimTo(0)
console.log(`after trimTo(0): ${formatBytes(pool.stats().reservedBytes)}`)
pool.maxPoolBytes = '128MiB'
console.log(`the limit now: ${formatBytes(pool.maxPoolBytes)}`)
