// Host time of a launch: `kernel.launch` with four arguments, beside the driver's call with everything prepared,
// through this package's table and bare through the foreign-function library, in turns and in one process. The kernel
// does nothing. The waits for it, between the batches, are not timed. Run: node dist/bench/launch.js [--device D]
// [--smoke] [--save DIR]

import koffi from 'koffi'
import type { KernelArguments } from '../src/core/driver/driver.js'
import { registerSimulatedKernel } from '../src/entries/simulated.js'
import { machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark("what a launch costs beside the driver's own call")
const values = optionsOf(program)
const BATCH = 400 // fewer than the driver queues before it waits
const BATCHES = values.smoke ? 5 : 500

const PTX = `
.version 6.3
.target sm_52
.address_size 64
.visible .entry bench_nothing(.param .u64 a, .param .u64 b, .param .u32 count, .param .f32 factor) { ret; }
`
registerSimulatedKernel('bench_nothing', () => {})

const device = deviceOf(program)
const { driver } = device
const stream = device.createStream()
const pool = device.createPool()
const [a, b] = [pool.allocate(4096, stream), pool.allocate(4096, stream)]
const kernel = device.loadModule(PTX).kernel('bench_nothing')

const handle = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), 'bench_nothing')
const shape = { grid: [4, 1, 1], block: [256, 1, 1], sharedBytes: 0 } as const
const args: KernelArguments = { bytes: new Uint8Array(24), offsets: [0, 8, 16, 20] }

const subjects: Record<string, () => void> = {
  'kernel.launch': () => kernel.launch({ grid: 4, block: 256, stream }, a, b, 1024, 0.5),
  'driver.cuLaunchKernel': () => driver.cuLaunchKernel(handle, shape, stream.handle, args),
}
if (!device.simulated) subjects['cuLaunchKernel, bare'] = bare()

/** The driver's function, with an array of addresses that was made beforehand. */
function bare(): () => void {
  const prototype = `int cuLaunchKernel(uint64_t f, ${'unsigned int n, '.repeat(7)}uint64_t s, uint64_t params, uint64_t extra)`
  const launch = koffi.load(driver.origin).func(prototype)
  const pointers = new BigUint64Array(4)
  const bytes = koffi.address(args.bytes)
  for (const [index, offset] of args.offsets.entries()) pointers[index] = bytes + BigInt(offset)
  const params = Number(koffi.address(pointers))
  return () => launch(handle, 4, 1, 1, 256, 1, 1, 0, stream.handle, params, 0)
}

const times = new Map(Object.keys(subjects).map(name => [name, [] as number[]]))
for (let batch = -10; batch < BATCHES; batch++) {
  for (const [name, launch] of Object.entries(subjects)) {
    const start = performance.now()
    for (let index = 0; index < BATCH; index++) launch()
    const ns = ((performance.now() - start) * 1e6) / BATCH
    stream.synchronize()
    if (batch >= 0) times.get(name)!.push(ns)
  }
}

const rows = [...times].map(([name, samples]) => ({ name, medianNs: Math.round(median(samples)) }))
const result = { machine: machineOf(device), parameters: { batch: BATCH, batches: BATCHES }, rows }
console.log(JSON.stringify(result, null, 2))
save(values.save, 'launch', result)
device.close()
