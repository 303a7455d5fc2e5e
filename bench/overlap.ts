// Whether streams run beside each other when each step of each needs memory of its own for a while: 1 to 8 streams,
// each a chain of kernels that take a fixed time and a fresh buffer. With a stream-ordered pool a step takes as long
// as one kernel, however many streams there are; cuMemFree waits for all of them. Each kernel also checks that its
// memory is its alone. Run: node dist/bench/overlap.js [--device D] [--smoke] [--save DIR] [--nvtx], the last one
// under a profiler

// Streams share this many queues to the GPU, by default 8: with more than there are streams here, none waits for
// another's.
process.env['CUDA_DEVICE_MAX_CONNECTIONS'] ??= '32'

import { MiB } from '../src/core/base/bytes.js'
import { registerSimulatedKernel } from '../src/core/driver/simulated-kernels.js'
import { openNvtx, profiled } from '../src/entries/profiling.js'
import type { DeviceBuffer, Pool } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('work on several streams at once, each step with memory of its own').option(
  '--nvtx',
  'with names for a profiler',
)
const values = optionsOf<BenchOptions & { nvtx?: boolean }>(program)
const device = deviceOf(program)
const BATCHES = values.smoke ? 3 : 15
const STREAMS = [1, 2, 4, 8]
const STEPS = values.smoke ? 4 : 100
const KERNEL_NS = 100_000
const BYTES = 1 * MiB

/** One thread that writes `stamp` into `data`, spins, and notes how long that took and what is in `data` then. */
const PTX = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry occupy(.param .u64 data, .param .u64 note, .param .u32 stamp, .param .u64 ns)
{
  .reg .pred %again;
  .reg .b32 %stamp, %passed32;
  .reg .b64 %data, %note, %ns, %begin, %passed;
  ld.param.u64 %data, [data];
  ld.param.u64 %note, [note];
  ld.param.u32 %stamp, [stamp];
  ld.param.u64 %ns, [ns];
  mov.u64 %begin, %globaltimer;
  st.volatile.u32 [%data], %stamp;
spin:
  mov.u64 %passed, %globaltimer;
  sub.u64 %passed, %passed, %begin;
  setp.lt.u64 %again, %passed, %ns;
  @%again bra spin;
  cvt.u32.u64 %passed32, %passed;
  ld.volatile.u32 %stamp, [%data];
  st.u32 [%note], %passed32;
  st.u32 [%note+4], %stamp;
  ret;
}
`
registerSimulatedKernel('occupy', ({ args, memory }) => {
  memory.store(args.pointer(0), Uint32Array.of(args.uint32(2)))
  memory.store(args.pointer(1), Uint32Array.of(args.pointer(3), args.uint32(2)))
})

interface Subject {
  readonly name: string
  readonly pool: Pool
  /** false: each buffer is freed as soon as its kernel is submitted; true: those of a step after all its kernels */
  readonly freesLate: boolean
}

const nvtx = values.nvtx ? openNvtx() : null
const streams = Array.from({ length: Math.max(...STREAMS) }, () => device.createStream())
for (const [index, stream] of streams.entries()) nvtx?.nameStream(stream, `chain ${index}`)

const watched = (name: string, pool: Pool) => (nvtx === null ? pool : profiled(pool, { nvtx, name }))
const plain = watched('cuMemAlloc', device.createPlainPool())
const subjects: readonly Subject[] = [
  { name: 'cuda-mempool', pool: watched('cuda-mempool', device.createPool()), freesLate: false },
  {
    name: 'cuMemAllocAsync/cuMemFreeAsync, threshold max',
    pool: watched('cuMemAllocAsync', device.defaultDriverPool()),
    freesLate: false,
  },
  { name: 'cuMemAlloc/cuMemFree', pool: plain, freesLate: false },
  { name: 'cuMemAlloc/cuMemFree, freed once a step', pool: plain, freesLate: true },
]

const occupy = device.loadModule(PTX).kernel('occupy')
/** of each kernel of a run: the nanoseconds that it took and the stamp that it found */
const notes = device.createPool().allocateArray(Uint32Array, 2 * STEPS * streams.length)

interface Run {
  readonly stepUs: number
  /** kernel time over wall time: the average number of kernels at once; null without times of a GPU */
  readonly overlap: number | null
}

function run({ pool, freesLate }: Subject, width: number): Run {
  device.synchronize()
  const held: DeviceBuffer[] = []
  const modelledBefore = device.driver.modelledSeconds ?? 0
  const start = performance.now()
  for (let step = 0; step < STEPS; step++) {
    for (let chain = 0; chain < width; chain++) {
      const [stream, index] = [streams[chain], step * width + chain]
      const buffer = pool.allocate(BYTES, stream)
      const note = { ptr: notes.ptr + 8 * index, context: device.context }
      occupy.launch({ grid: 1, block: 1, stream }, buffer, note, index + 1, KERNEL_NS)
      if (freesLate) held.push(buffer)
      else buffer.free()
    }
    for (const buffer of held.splice(0)) buffer.free()
  }
  device.synchronize()
  const wallNs = (performance.now() - start) * 1e6
  const kernelNs = takeNotes(STEPS * width)
  const { modelledSeconds } = device.driver
  if (modelledSeconds !== null) return { stepUs: ((modelledSeconds - modelledBefore) * 1e6) / STEPS, overlap: null }
  return { stepUs: wallNs / 1e3 / STEPS, overlap: kernelNs / wallNs }
}

/** The summed time of all kernels; throws if a kernel did not find its own stamp at its end. */
function takeNotes(kernels: number): number {
  const taken = notes.readSync()
  let totalNs = 0
  for (let index = 0; index < kernels; index++) {
    if (taken[2 * index + 1] !== index + 1) throw new Error(`kernel ${index} lost its memory to another`)
    totalNs += taken[2 * index]
  }
  return totalNs
}

const rows = STREAMS.map(width => {
  const runs = subjects.map((): Run[] => [])
  for (let batch = 0; batch <= BATCHES; batch++) {
    for (const [index, subject] of subjects.entries()) {
      const result = run(subject, width)
      if (batch > 0) runs[index].push(result) // the first batch of each warms up and does not count
    }
  }
  return {
    streams: width,
    subjects: subjects.map(({ name }, index) => ({
      name,
      stepUs: Number(median(runs[index].map(each => each.stepUs)).toFixed(2)),
      leastStepUs: Number(Math.min(...runs[index].map(each => each.stepUs)).toFixed(2)),
      overlap: device.simulated ? null : Number(median(runs[index].map(each => each.overlap ?? 0)).toFixed(2)),
    })),
  }
})

const machine = machineOf(device)
console.log(
  headline(machine, 'times are what the driver calls would cost the host, no kernel takes any, and nothing overlaps'),
)
console.log(
  `medians of ${BATCHES} batches of ${STEPS} steps; a step is one kernel of ${KERNEL_NS / 1000} µs with a buffer of ${BYTES / MiB} MiB on each stream`,
)
for (const { streams: width, subjects: results } of rows) {
  console.log(
    `\n${width} ${width === 1 ? 'stream' : 'streams'}`.padEnd(51) + 'µs a step'.padStart(12) + 'overlap'.padStart(10),
  )
  for (const { name, stepUs, overlap } of results) {
    console.log(`  ${name.padEnd(48)}${stepUs.toFixed(1).padStart(12)}${(overlap?.toFixed(2) ?? '–').padStart(10)}`)
  }
}
const connections = process.env['CUDA_DEVICE_MAX_CONNECTIONS']
const parameters = {
  batches: BATCHES,
  steps: STEPS,
  kernelNs: KERNEL_NS,
  bytes: BYTES,
  connections,
  nvtx: values.nvtx === true,
}
save(values.save, 'overlap', { machine, parameters, rows })
device.close()
