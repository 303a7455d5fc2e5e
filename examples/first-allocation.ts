import { MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto')
using pool = device.createPool({ maxPoolBytes: '80%' }) // of the device; 4 GiB if you say nothing

using numbers = pool.upload(new Float32Array(1024).fill(0.5)) // typed memory on the device
using scratch = pool.allocate(3 * MiB) // or just bytes
scratch.fill(0)
scratch.copyFrom(numbers)
console.log(`${device.name}: read ${(await numbers.read())[0]} back, ${pool.stats().liveBuffers} buffers held`)
