// A program whose allocations NVIDIA's profilers can show, with --nvtx. The NVTX library, which profilers listen to,
// comes with the CUDA toolkit; without it the program runs all the same.
// In a clone: npm run build && nsys profile --trace=cuda,nvtx node dist/examples/profiled.js --nvtx

import { formatBytes, MiB, NoLibraryError, openDevice } from 'cuda-mempool'
import { type Nvtx, openNvtx, profiled } from 'cuda-mempool/profiling'

using device = openDevice('auto')
using memory = device.createPool()
using copies = device.createStream()

function nvtxIfAsked(): Nvtx | null {
  if (!process.argv.includes('--nvtx')) return null
  try {
    return openNvtx()
  } catch (error) {
    if (!(error instanceof NoLibraryError)) throw error
    console.log(error.message)
    return null
  }
}

const nvtx = nvtxIfAsked()
nvtx?.nameStream(copies, 'copies')
const weights = nvtx === null ? memory : profiled(memory, { nvtx, name: 'weights' })
const requests = nvtx === null ? memory : profiled(memory, { nvtx, name: 'requests' })

using model = weights.allocate(64 * MiB, copies)
model.fill(1)
for (let request = 0; request < 3; request++) {
  using _step = nvtx?.range(`request ${request}`) // over the await, beside other requests
  using input = requests.allocate(4 * MiB, copies)
  input.copyFrom(model, 0, 0, input.byteLength)
  await input.read(0, 1)
}
console.log(`${nvtx === null ? 'nobody listens' : nvtx.path}; ${formatBytes(memory.stats().peakLiveBytes)} at most`)
