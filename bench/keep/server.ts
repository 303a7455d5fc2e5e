// The server of ../keep.ts, a process of its own: answers each number with the sum of a column of weights times it.
// It imports the package as a program does.

import { openDevice } from 'cuda-mempool'
import { openKeep } from 'cuda-mempool/processes'

const THREADS = 256
const SOURCE = `
extern "C" __global__ void layer(const float *weights, float input, float *output, int size) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= size) return;
  float sum = 0;
  for (int i = 0; i < size; i++) sum += weights[(size_t)i * size + row] * input;
  output[row] = sum;
}
`

const [path, which] = process.argv.slice(2)
const device = openDevice(which === 'simulated' ? which : Number(which))
const size = device.simulated ? 256 : 16_384
const keep = await openKeep(device, { path })
const bytes = size * size * Float32Array.BYTES_PER_ELEMENT
const weights = await keep.region('weights', { bytes }, region => {
  region.place('layer', Float32Array, size * size).fill(2)
})
const module = device.compileKernels(SOURCE, {
  simulated: {
    layer: ({ args, memory }) => {
      const sum = memory.load(Float32Array, args.pointer(0), size).reduce((total, w) => total + w, 0)
      memory.store(args.pointer(2), new Float32Array(size).fill(sum * args.float32(1)))
    },
  },
})
const layer = module.kernel('layer')
const pool = device.createPool()
const matrix = weights.array('layer', Float32Array)
process.on('message', async (input: number) => {
  using output = pool.allocateArray(Float32Array, size)
  layer.launch({ grid: Math.ceil(size / THREADS), block: THREADS }, matrix, input, output, size)
  const answers = await output.read()
  process.send!(answers[size - 1])
})
process.send!(size)
