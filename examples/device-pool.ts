// Memory allocated inside a running kernel. Each of 1,024 threads allocates a float from a pool in device memory,
// writes its number there, and stores the address. The host reads the counters, lets the pool run full, and resets
// it.
// In a clone: npm run build && node dist/examples/device-pool.js

import { formatBytes, KiB, openDevice } from 'cuda-mempool'
import { createDeviceArena, SimulatedArena } from 'cuda-mempool/kernels'

const THREADS = 1024

// CUDA C++, which NVRTC compiles while the program runs. The header comes with this package.
const SOURCE = `
#include "cuda_mempool.cuh"

extern "C" __global__ void take_floats(cuda_mempool::DevicePool *pool, float **taken) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  float *const mine = static_cast<float *>(pool->allocate(sizeof(float))); // an atomicAdd, with bounds
  if (mine != nullptr) *mine = thread;
  taken[thread] = mine;
}
`

using device = openDevice('auto')
using pool = device.createPool()
using stream = device.createStream()
using module = device.compileKernels(SOURCE, {
  // The simulated device cannot compile: it runs this function instead, for the whole grid.
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

using region = pool.allocate(48 * KiB, stream) // the kernel's pool lies in a buffer of any pool
using floats = createDeviceArena(device, region, { stream })
using taken = pool.allocate(8 * THREADS, stream)

const launch = () => takeFloats.launch({ grid: 4, block: 256, stream }, floats, taken)

launch()
const addresses = new BigUint64Array((await taken.read()).buffer)
const values = new Float32Array((await region.read(floats.base - region.ptr, 16 * THREADS)).buffer)
const sum = values.reduce((total, value, index) => (index % 4 === 0 ? total + value : total), 0)
const { takenBytes, maxPoolBytes } = await floats.stats()
console.log(`${device.name}: ${new Set(addresses).size} threads have a float each, which add up to ${sum}`)
console.log(`${formatBytes(takenBytes)} of ${formatBytes(maxPoolBytes)} are taken, 16 B a float`)

launch()
launch() // more than fits: further allocations return nullptr, and are counted
const { failures } = await finished()
console.log(`after two more launches it is full: ${failures} threads got nothing`)

floats.reset(stream) // in the order of the stream, like everything else
launch()
console.log(`after a reset ${formatBytes((await finished()).takenBytes)} are taken again`)
if (sum !== (THREADS * (THREADS - 1)) / 2) process.exitCode = 1

/** The counters when all launches are complete; `stats()` alone reads them at once. */
async function finished() {
  await stream.finished()
  return floats.stats()
}
