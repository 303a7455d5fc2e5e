// Memory taken inside a running kernel: each of 1,024 threads asks a pool in device memory for room for a float, puts its
// number there and leaves the address. The host sees how much was taken, lets the pool run full, and gives it all back at once.
// Run: npm run build && node dist/examples/device-pool.js

import { formatBytes, KiB, openDevice, parseDeviceChoice, SimulatedArena } from 'cuda-mempool'

const THREADS = 1024

// CUDA C++, compiled while the program runs, by NVRTC. The header comes with this package.
const SOURCE = `
#include "cuda_mempool.cuh"

extern "C" __global__ void take_floats(cuda_mempool::DevicePool *pool, float **taken) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  float *const mine = static_cast<float *>(pool->allocate(sizeof(float))); // an atomicAdd, with bounds
  if (mine != nullptr) *mine = thread;
  taken[thread] = mine;
}
`

using device = openDevice(parseDeviceChoice(process.env.CUDA_MEMPOOL_DEVICE ?? 'auto'))
using pool = device.createPool()
using stream = device.createStream()
using module = device.compileKernels(SOURCE, {
  // The simulated device compiles nothing: there this runs instead, for the whole grid.
  simulated: {
    take_floats: ({ shape, args, memory }) => {
      const arena = new SimulatedArena(memory, args.pointer(0))
      for (let thread = 0; thread < shape.grid[0] * shape.block[0]; thread++) {
        const mine = arena.allocate(4)
        if (mine !== 0) memory.store(mine, Float32Array.of(thread))
        memory.write(args.pointer(1) + 8 * thread, new Uint8Array(BigUint64Array.of(BigInt(mine)).buffer))
      }
    },
  },
})
const takeFloats = module.kernel('take_floats')

using region = pool.allocate(48 * KiB, stream) // what the kernel's pool hands out comes from any pool of the host's
using floats = device.createDeviceArena(region, { stream })
using taken = pool.allocate(8 * THREADS, stream)

const launch = () => takeFloats.launch({ grid: 4, block: 256, stream }, floats, taken)

launch()
const addresses = new BigUint64Array((await taken.read()).buffer)
const values = new Float32Array((await region.read(floats.base - region.ptr, 16 * THREADS)).buffer)
const sum = values.reduce((total, value, index) => (index % 4 === 0 ? total + value : total), 0)
const { takenBytes, limitBytes } = await floats.stats()
console.log(`${device.name}: ${new Set(addresses).size} threads have a float each, which add up to ${sum}`)
console.log(`${formatBytes(takenBytes)} of ${formatBytes(limitBytes)} are taken, 16 B a float`)

launch()
launch() // more than there is: what does not fit is refused, with a nullptr, and counted
const { failures } = await finished()
console.log(`after two more launches it is full: ${failures} threads got nothing`)

floats.reset(stream) // in the order of the stream, like everything else
launch()
console.log(`after a reset ${formatBytes((await finished()).takenBytes)} are taken again`)
if (sum !== (THREADS * (THREADS - 1)) / 2) process.exitCode = 1

/** What the kernel's pool has counted when all launches are done; `stats()` alone says how it is now. */
async function finished() {
  await stream.finished()
  return floats.stats()
}
