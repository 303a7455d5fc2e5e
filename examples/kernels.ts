// Kernels from CUDA C++: floats, integers of 64 bits, halves and bfloat16. The simulated device runs a function for
// each kernel instead. docs/element-types.md has a table of all types.
// In a clone: npm run build && node dist/examples/kernels.js

import { bfloat16, float16, openDevice } from 'cuda-mempool'

const SOURCE = `
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void add(const long long *x, long long *y, long long k, size_t n) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + k;
}
extern "C" __global__ void to_half(const float *x, __half *y) { y[threadIdx.x] = __float2half(x[threadIdx.x]); }
extern "C" __global__ void to_bfloat16(const float *x, __nv_bfloat16 *y) {
  y[threadIdx.x] = __float2bfloat16(x[threadIdx.x]);
}
`

using device = openDevice('auto')
using pool = device.createPool()
using stream = device.createStream()
using module = device.compileKernels(SOURCE, {
  simulated: {
    saxpy: ({ args, memory }) => {
      const [a, n] = [args.float32(0), args.int32(3)]
      const [x, y] = [memory.load(Float32Array, args.pointer(1), n), memory.load(Float32Array, args.pointer(2), n)]
      memory.store(
        args.pointer(2),
        y.map((value, i) => value + a * x[i]!),
      )
    },
    add: ({ args, memory }) => {
      const x = memory.load(BigInt64Array, args.pointer(0), Number(args.uint64(3)))
      memory.store(
        args.pointer(1),
        x.map(value => value + args.int64(2)),
      )
    },
    to_half: ({ args, memory, shape }) =>
      memory.store(args.pointer(1), float16.encode(memory.load(Float32Array, args.pointer(0), shape.block[0]))),
    to_bfloat16: ({ args, memory, shape }) =>
      memory.store(args.pointer(1), bfloat16.encode(memory.load(Float32Array, args.pointer(0), shape.block[0]))),
  },
})

using x = pool.upload(new Float32Array([1, 2, 3, 4]), stream)
using y = pool.zeros(Float32Array, 4, stream)
module.kernel('saxpy').launch({ grid: 1, block: 256 }, 2, x, y, 4) // on the stream of its buffers
console.log(await y.read())

using large = pool.upload(new BigInt64Array([1n, 2n ** 60n]), stream)
using sums = pool.allocateArray(BigInt64Array, 2, stream)
module.kernel('add').launch({ grid: 1, block: 32 }, large, sums, 5n, 2)
console.log(await sums.read())

using halves = pool.allocateArray(Uint16Array, 4, stream)
module.kernel('to_half').launch({ grid: 1, block: 4 }, x, halves)
console.log(float16.decode(await halves.read()))
module.kernel('to_bfloat16').launch({ grid: 1, block: 4 }, x, halves)
console.log(bfloat16.decode(await halves.read()))
