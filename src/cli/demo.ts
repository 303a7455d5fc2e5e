// A whole program with a pool, a kernel and copies; `cuda-mempool demo` runs this file as it stands. To start from a
// copy, import from 'cuda-mempool' and use a kernel of your own.

import { type DeviceChoice, GiB, MiB, openDevice } from '../index.js'
import { SCALE_PTX } from './scale-kernel.js'

export async function demo(choice: DeviceChoice, say: (line: string) => void): Promise<void> {
  using device = openDevice(choice)
  using pool = device.createPool({ maxPoolBytes: 256 * MiB })
  using stream = device.createStream()
  using module = device.loadModule(SCALE_PTX)
  const scale = module.kernel('scale')
  say(`Device: ${device.name}, ${(device.totalBytes / GiB).toFixed(1)} GiB`)

  using numbers = pool.allocateArray(Float32Array, 1024, stream)
  numbers.write(Float32Array.from({ length: 1024 }, (_, index) => index))
  scale.launch({ grid: 4, block: 256, stream }, numbers, 0.5, numbers.length)
  const [first, second, third, fourth] = await numbers.read()
  say(`A kernel halved 0, 1, 2, 3, … on the device: ${first}, ${second}, ${third}, ${fourth}, …`)

  for (let step = 0; step < 1000; step++) {
    using scratch = pool.allocate(3 * MiB, stream) // freed at the end of each step, in the order of the stream
    scratch.fill(0)
  }
  const { allocations, growths, peakLiveBytes, reservedBytes } = pool.stats()
  say(`The pool served ${allocations} allocations and asked the driver for memory ${growths} times.`)
  say(`At most ${(peakLiveBytes / MiB).toFixed(1)} MiB were in use at once, ${reservedBytes / MiB} MiB are reserved.`)
}
