// How much memory a pool may take: the limit that the scheduler or the operator sets, or a share of the device. And how
// idle memory goes back.
// docs/recipes/limits.md explains it. In a clone: npm run build && node dist/examples/limits.js

import { type ByteSize, formatBytes, openDevice, parseBytes } from 'cuda-mempool'

/** The limit for a pool on device 0, from the environment of this process. */
function limitFrom(env: NodeJS.ProcessEnv): ByteSize {
  // Your own variable, for schedulers that share a GPU and name no limit: '20GiB' or '25%'.
  if (env['GPU_MEMORY']) return env['GPU_MEMORY'] as ByteSize
  // HAMi, as '3000m'.
  const hami = env['CUDA_DEVICE_MEMORY_LIMIT_0'] ?? env['CUDA_DEVICE_MEMORY_LIMIT']
  if (hami) return parseBytes(hami)
  // CUDA's multi-process service, as '0=2G,1=512M'.
  const mps = /(?:^|,)0=([^,]+)/.exec(env['CUDA_MPS_PINNED_DEVICE_MEM_LIMIT'] ?? '')
  if (mps !== null) return parseBytes(mps[1]!)
  // Slurm with --gres=mps:25, where a quarter of the threads should take a quarter of the memory.
  const percent = env['CUDA_MPS_ACTIVE_THREAD_PERCENTAGE']
  if (percent) return `${Number(percent)}%`
  return '90%' // the device is ours, or a MIG instance, whose memory is the device's here
}

const environments = [
  {},
  { GPU_MEMORY: '25%' },
  { CUDA_DEVICE_MEMORY_LIMIT_0: '3000m' },
  { CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: '0=2G,1=512M' },
  { CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: '50' },
]
for (const env of environments) {
  const limit = limitFrom(env)
  console.log(`${JSON.stringify(env)}: ${typeof limit === 'number' ? formatBytes(limit) : limit}`)
}

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: limitFrom(process.env), leaveFreeBytes: '256MiB' })
const { freeBytes, totalBytes } = device.memoryInfo()
console.log(`limit below the device's memory: ${pool.maxPoolBytes < totalBytes}, some is free: ${freeBytes > 0}`)
pool.allocate('64MiB').free()
console.log(`kept for the next request: ${formatBytes(pool.stats().reservedBytes)}`)
pool.trimTo(0)
console.log(`after trimTo(0): ${formatBytes(pool.stats().reservedBytes)}`)
pool.maxPoolBytes = '128MiB'
console.log(`the limit now: ${formatBytes(pool.maxPoolBytes)}`)
