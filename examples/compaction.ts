// A kernel reads a million measurements and appends the few high ones, each with its index, to an arena in device
// memory. Their number is not known in advance, and the host reads back only these.
// In a clone: npm run build && node dist/examples/compaction.js

import { formatBytes, MiB, openDevice } from 'cuda-mempool'
import { createDeviceArena, SimulatedArena } from 'cuda-mempool/kernels'

const COUNT = 1_000_000
const LIMIT = 0.999

const SOURCE = `
#include "cuda_mempool.cuh"

struct alignas(16) Peak { unsigned index; float value; };

extern "C" __global__ void keep_peaks(cuda_mempool::DeviceArena *arena, const float *values, unsigned count, float limit) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count || values[index] <= limit) return;
  Peak *const kept = static_cast<Peak *>(arena->allocate(sizeof(Peak))); // the threads of a warp share one atomicAdd
  if (kept != nullptr) *kept = {index, values[index]};
}
`

using device = openDevice('auto')
using pool = device.createPool()
using stream = device.createStream()
using module = device.compileKernels(SOURCE, {
  simulated: {
    keep_peaks: ({ args, memory }) => {
      const arena = new SimulatedArena(memory, args.pointer(0))
      for (const [index, value] of memory.load(Float32Array, args.pointer(1), args.uint32(2)).entries()) {
        if (value <= args.float32(3)) continue
        const kept = arena.allocate(16)
        if (kept === 0) continue
        memory.store(kept, Uint32Array.of(index))
        memory.store(kept + 4, Float32Array.of(value))
      }
    },
  },
})

using values = pool.allocateArray(Float32Array, COUNT, stream)
const host = Float32Array.from({ length: COUNT }, (_, index) => ((index * 7919) % 100_003) / 100_003)
values.write(host)
using region = pool.allocate(1 * MiB, stream)
using peaks = createDeviceArena(device, region, { stream })

module.kernel('keep_peaks').launch({ grid: Math.ceil(COUNT / 256), block: 256, stream }, peaks, values, COUNT, LIMIT)
await stream.finished()
const { takenBytes, failures } = await peaks.stats()

// Appended values lie in a row from the arena's base on: in any order, but without gaps.
const kept = await region.read(peaks.base - region.ptr, takenBytes)
const found = new Uint32Array(kept.buffer).filter((_, word) => word % 4 === 0).sort()
const expected = host.reduce((count, value) => (value > Math.fround(LIMIT) ? count + 1 : count), 0)
const right = found.length === expected && found.every(index => host[index]! > Math.fround(LIMIT))
console.log(`${device.name}: ${found.length} of ${COUNT} values are above ${LIMIT}, the first at ${found[0]}`)
console.log(`${formatBytes(takenBytes)} came back instead of ${formatBytes(4 * COUNT)}; ${failures} did not fit`)
if (!right || failures > 0) process.exitCode = 1
