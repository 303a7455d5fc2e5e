// Allocations inside kernels, in millions of calls a second, beside CUDA's own malloc and a bare atomicAdd, all in
// one run. Times are the GPU's own, by events around launches that follow each other. A pair is a malloc and a free,
// two calls. Run: node dist/bench/in-kernel.js [--device N] [--smoke] [--save DIR]

import koffi from 'koffi'
import { NO_TRIALS, trialsPtx } from '../cuda/compile-ptx.js'
import { GiB, KiB } from '../src/core/base/bytes.js'
import { controlPtx } from '../src/core/kernel/device-code.js'
import type { KernelArgument } from '../src/core/kernel/kernel.js'
import { heapGeometry, SUPERBLOCK_BYTES, superblocksWithin } from '../src/kernel-memory/device-layout.js'
import { heapStats, statsBytes } from '../src/kernel-memory/heap-stats.js'
import { machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark("allocations inside kernels, beside CUDA's malloc and a bare atomicAdd")
const values = optionsOf(program)
const device = deviceOf(program)
const REGION_BYTES = values.smoke ? GiB / 8 : 6 * GiB
const THREADS = values.smoke ? [1024] : [65_536, 2 ** 20]
const REPEATS = values.smoke ? 1 : 9
const BLOCK = 256
/** fewer for CUDA's own allocator, which is much slower */
const MOST_CUDA_THREADS = 65_536
const CUDA_MALLOC_HEAP_SIZE = 2

interface Shape {
  readonly name: string
  readonly least: number
  readonly most: number
  /** 0 evenly in the size, 1 evenly in its logarithm */
  readonly even: 0 | 1
}
const SHAPES: readonly Shape[] = [
  ...[16, 64, 256].map((bytes): Shape => ({ name: `${bytes} B`, least: bytes, most: bytes, even: 0 })),
  { name: '16 to 256 B', least: 16, most: 256, even: 0 },
  { name: '16 B to 4 KiB', least: 16, most: 4 * KiB, even: 0 },
  { name: '16 B to 4 KiB, log', least: 16, most: 4 * KiB, even: 1 },
]

/** Events that know the time, and the size of CUDA's own heap: nothing in the package needs them. */
function openTimer() {
  const library = koffi.load('libcuda.so.1')
  const call = (prototype: string) => {
    const bound = library.func(prototype)
    return (...args: unknown[]) => {
      const result = bound(...args)
      if (result !== 0) throw new Error(`${prototype} returned ${result}`)
    }
  }
  const create = call('int cuEventCreate(_Out_ uint64_t *event, unsigned int flags)')
  const record = call('int cuEventRecord(uint64_t event, uint64_t stream)')
  const synchronize = call('int cuEventSynchronize(uint64_t event)')
  const elapsed = call('int cuEventElapsedTime(_Out_ float *milliseconds, uint64_t start, uint64_t end)')
  const setLimit = call('int cuCtxSetLimit(int limit, uint64_t value)')
  const [start, end] = [0, 0].map(() => {
    const event: [number] = [0]
    create(event, 0)
    return event[0]
  })
  return {
    setLimit,
    /** microseconds that `work` takes on the device's default stream */
    measure(work: () => void): number {
      record(start, device.defaultStream.handle)
      work()
      record(end, device.defaultStream.handle)
      synchronize(end)
      const milliseconds: [number] = [0]
      elapsed(milliseconds, start, end)
      return milliseconds[0] * 1000
    },
  }
}

function measureAll(ptx: string) {
  device.context.activate()
  const timer = openTimer()
  timer.setLimit(CUDA_MALLOC_HEAP_SIZE, GiB)
  const control = device.loadModule(controlPtx())
  const trials = device.loadModule(ptx)
  using pool = device.createPlainPool()
  const most = Math.max(...THREADS)
  const memory = pool.allocate(REGION_BYTES + SUPERBLOCK_BYTES)
  const heap = Math.ceil(memory.ptr / SUPERBLOCK_BYTES) * SUPERBLOCK_BYTES
  const small = pool.allocate(4 * KiB)
  const [arena, bare, faults] = [small.ptr, small.ptr + 2 * KiB, small.ptr + 3 * KiB]
  const blocks = pool.allocate(8 * most)
  const kernels = new Map(
    ['heap_take', 'heap_free', 'churn', 'cuda_take', 'cuda_free'].map(name => [name, trials.kernel(name)]),
  )
  const launch = (name: string, threads: number, ...args: readonly KernelArgument[]) =>
    kernels.get(name)?.launch({ grid: threads / BLOCK, block: BLOCK }, ...args)

  const geometry = heapGeometry(REGION_BYTES)
  const limit = superblocksWithin(geometry, REGION_BYTES)
  const { superblocksAt, reserved, slotMask } = geometry
  const initialise = { grid: 256, block: BLOCK }
  control.kernel('heap_initialise').launch(initialise, heap, heap + superblocksAt, reserved, limit, slotMask)
  // Offsets without memory behind them: only the counting is measured.
  small.fill(0)
  control.kernel('bump_initialise').launch({ grid: 1, block: 1 }, arena, 4096, 2 ** 50, 2 ** 50)

  const times = (work: () => void, repeats = REPEATS) => {
    work() // loads the code
    return median(Array.from({ length: repeats }, () => timer.measure(work)))
  }
  const rate = (calls: number, microseconds: number) => Math.round((10 * calls) / microseconds) / 10
  // So that the clock is up before the first is measured.
  for (let index = 0; index < 10 * REPEATS; index++) launch('churn', most, heap, 4, 64, 64, 0, 1, 0, faults)
  const bumps = []
  const heaps = []
  for (const threads of THREADS) {
    const BATCH = values.smoke ? 2 : 200
    const bump = (name: string, from: number, ...args: readonly number[]) => {
      const kernel = trials.kernel(name)
      const shape = { grid: threads / BLOCK, block: BLOCK }
      const batch = () => {
        for (let index = 0; index < BATCH; index++) kernel.launch(shape, from, blocks, threads, ...args)
      }
      return rate(threads * BATCH, times(batch))
    }
    const fixed = ['bare_take_64_narrow', 'bare_take_64', 'arena_take_64'] as const
    const [bareNarrow, bareAdd, arenaRate] = fixed.map(name => bump(name, name.startsWith('bare') ? bare : arena))
    bumps.push({ threads, size: '64 B, known to the compiler', bareNarrow, bare: bareAdd, arena: arenaRate })
    for (const { name, least, most, even } of SHAPES) {
      const [bareAny, poolAny, arenaAny] = [
        bump('bare_take', bare, least, most, even, 1),
        bump('pool_take', arena, least, most, even, 1),
        bump('arena_take', arena, least, most, even, 1),
      ]
      bumps.push({ threads, size: name, bare: bareAny, pool: poolAny, arena: arenaAny })
    }
    for (const { name, least, most, even } of SHAPES) {
      const PAIRS = 10
      const pairs = (stride: number) => () => {
        for (let pair = 0; pair < PAIRS; pair++) {
          launch('heap_take', threads, heap, blocks, threads, least, most, even, 1)
          launch('heap_free', threads, heap, blocks, threads, stride)
        }
      }
      const own = rate(2 * threads * PAIRS, times(pairs(1)))
      const others = rate(2 * threads * PAIRS, times(pairs(40_503)))
      // Each thread takes and frees four times, and holds up to four blocks at a time.
      const churn = () => launch('churn', threads, heap, 4, least, most, even, 1, 0, faults)
      const oneKernel = rate(8 * threads, times(churn))
      const cudaThreads = Math.min(threads, MOST_CUDA_THREADS)
      const cuda = () => {
        launch('cuda_take', cudaThreads, blocks, cudaThreads, least, most, even, 1)
        launch('cuda_free', cudaThreads, blocks, cudaThreads)
      }
      const cudaRate = rate(2 * cudaThreads, times(cuda, Math.min(3, REPEATS)))
      heaps.push({ threads, size: name, own, others, oneKernel, cuda: cudaRate, times: Math.round(own / cudaRate) })
    }
  }

  const copy = new Uint8Array(statsBytes(reserved))
  device.synchronize()
  device.driver.cuMemcpyDtoH(copy, heap)
  const statistics = heapStats(copy)
  if (statistics.liveBlocks !== 0 || statistics.failures !== 0 || statistics.usedBytes !== 0) {
    throw new Error(`the heap should be empty, without failures: ${JSON.stringify(statistics)}`)
  }
  for (const module of [control, trials]) module.close()
  return { bumps, heaps, statistics }
}

const ptx = device.simulated ? null : trialsPtx()
if (device.simulated) console.log('this needs a GPU: the simulated device reads no PTX')
else if (ptx === null) console.log(NO_TRIALS)
else {
  const result = measureAll(ptx)
  const machine = machineOf(device)
  console.log(
    `${device.name}, CUDA ${machine.driverVersion}, driver ${machine.gpuDriver ?? '–'}; millions of calls a second`,
  )
  console.table(result.bumps)
  console.table(result.heaps)
  for (const row of [...result.bumps, ...result.heaps]) console.log(JSON.stringify(row))
  const parameters = { regionBytes: REGION_BYTES, repeats: REPEATS, block: BLOCK, cudaThreads: MOST_CUDA_THREADS }
  save(values.save, 'in-kernel', { machine, parameters, ...result })
}
device.close()
