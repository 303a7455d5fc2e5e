import { MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto') // GPU 0, or else a simulated GPU
using pool = device.createPool({ maxPoolBytes: '80%' })

using numbers = pool.upload(new Float32Array([1, 2, 3]))
using scratch = pool.allocate(64 * MiB)
scratch.fill(0)
console.log(await numbers.read(), `${pool}`)
