// A graph: copies and a kernel are captured once, and launched again and again with new input from pinned memory.
// In a clone: npm run build && node dist/examples/graph.js

import { openDevice } from 'cuda-mempool'

const COUNT = 1024
const SOURCE = `
extern "C" __global__ void twice(float *values, int count) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) values[index] *= 2;
}
`

using device = openDevice('auto')
using pool = device.createPool()
using host = device.createHostPool()
using stream = device.createStream()
using module = device.compileKernels(SOURCE, {
  simulated: {
    twice: ({ args, memory }) => {
      const values = memory.load(Float32Array, args.pointer(0), args.int32(1))
      memory.store(
        args.pointer(0),
        values.map(value => 2 * value),
      )
    },
  },
})

using input = host.allocateArray(Float32Array, COUNT)
using output = host.allocateArray(Float32Array, COUNT)
using graph = device.capture(stream, () => {
  using values = pool.allocateArray(Float32Array, COUNT, stream)
  input.copyTo(values)
  module.kernel('twice').launch({ grid: COUNT / 256, block: 256 }, values, COUNT) // captured, as its buffer's stream is
  output.copyFrom(values)
})
for (let step = 1; step <= 3; step++) {
  input.elements.fill(step)
  graph.launch()
  await stream.finished()
  console.log(`${step} gives ${output.elements[0]}`)
}
console.log(`${graph}`)
