import { MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto') // GPU 0, or a simulated GPU on a machine without one
using pool = device.createPool({ maxPoolBytes: '80%' }) // of the device; 4 GiB if you say nothing

using numbers = pool.upload(new Float32Array([1, 2, 3])) // a typed array on the GPU
using scratch = pool.allocate(64 * MiB) // or bytes
scratch.fill(0)
console.log(await numbers.read(), `${pool}`)
