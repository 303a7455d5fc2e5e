// Host time of an allocation of pinned memory and its free, beside the driver's own calls on a GPU, which nothing
// under src/ uses; and what it takes to send a filled buffer to the device, with and without pinning. Run: node
// dist/bench/host.js [--device D] [--smoke] [--save DIR]

import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Device } from '../src/core/device/device.js'
import type { HostPool } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'
import { loopsFor, PER_LIST } from './pool-loops.js'

const program = deviceBenchmark("host time of pinned buffers, beside the driver's own calls")
const values = optionsOf(program)
const device = deviceOf(program)
const scale = values.smoke ? 0.002 : 1
const BATCHES = values.smoke ? 3 : 15
const PORTABLE = 1

/** A subject to time: `run` repeats it the given number of times. */
interface Subject {
  readonly name: string
  readonly times: number
  readonly run: (times: number) => void
}

async function pairs(name: string, source: Pick<HostPool, 'allocate'>, bytes: number): Promise<Subject> {
  const loops = await loopsFor(`${name}, ${bytes}`)
  return { name, times: 1000 * PER_LIST, run: times => loops.pairNs(source, undefined, bytes, times) }
}

/** cuMemHostAlloc and cuMemFreeHost, bound here; null without a GPU. */
async function driverPairs(opened: Device, bytes: number): Promise<Subject | null> {
  if (opened.simulated) return null
  const { default: koffi } = await import('koffi')
  const library = koffi.load(opened.driver.origin)
  const allocate = library.func('int cuMemHostAlloc(uint64_t *pp, size_t bytes, unsigned int flags)')
  const free = library.func('int cuMemFreeHost(uint64_t p)')
  const pointer = new BigUint64Array(1)
  return {
    name: 'cuMemHostAlloc/cuMemFreeHost',
    times: 200,
    run: times => {
      for (let pair = 0; pair < times; pair++) {
        const code = allocate(pointer, bytes, PORTABLE) || free(pointer[0])
        if (code !== 0) throw new Error(`the driver refused pinned memory with ${code}`)
      }
    },
  }
}

/** Fills 1 MiB and sends it, `times` times. The host waits after each, like a program that reuses its memory. */
function uploads(opened: Device, pool: HostPool): Subject[] {
  const stream = opened.createStream()
  const target = opened.createPool().allocate(1 * MiB, stream)
  const pageable = new Uint8Array(1 * MiB)
  return [
    {
      name: 'pinned: allocate, copyTo, free',
      times: 2000,
      run: times => {
        for (let upload = 0; upload < times; upload++) {
          const buffer = pool.allocate(1 * MiB)
          buffer.bytes.fill(upload)
          buffer.copyTo(target)
          stream.synchronize()
          buffer.free()
        }
      },
    },
    {
      name: 'pinned: the same without waiting',
      times: 2000,
      run: times => {
        for (let upload = 0; upload < times; upload++) {
          const buffer = pool.allocate(1 * MiB)
          buffer.bytes.fill(upload)
          buffer.copyTo(target)
          buffer.free()
        }
        stream.synchronize()
      },
    },
    {
      name: 'an ordinary array: write',
      times: 2000,
      run: times => {
        for (let upload = 0; upload < times; upload++) {
          pageable.fill(upload)
          target.write(pageable)
          stream.synchronize()
        }
      },
    },
  ]
}

const pool = device.createHostPool()
const shared = device.createSharedHostPool()
// Other kinds of pool are alive and in use, so that no call site of the library knows only one.
for (const kind of [device.createPool(), device.createPlainPool()]) {
  for (let count = 0; count < 200; count++) kind.allocate(4096).free()
}

/** The pools that provide the buffers. */
const written: Pick<HostPool, 'allocate'> = {
  allocate(bytes) {
    const buffer = pool.allocate(bytes)
    buffer.bytes[0] = 1
    return buffer
  },
}
const workloads = [
  { name: 'pair 4 KiB', subjects: [await pairs('host pool', pool, 4 * KiB), await driverPairs(device, 4 * KiB)] },
  {
    name: 'pair 1 MiB',
    subjects: [
      await pairs('host pool', pool, 1 * MiB),
      await driverPairs(device, 1 * MiB),
      await pairs('host pool, shared', shared, 1 * MiB),
      await pairs('host pool, with its bytes', written, 1 * MiB),
    ],
  },
  { name: 'fill 1 MiB and send it', subjects: uploads(device, pool) },
]

const rows = workloads.map(({ name, subjects }) => {
  const all = subjects.filter(subject => subject !== null)
  const batches = all.map((): number[] => [])
  for (let batch = 0; batch <= BATCHES; batch++) {
    for (const [index, { times, run }] of all.entries()) {
      const count = Math.ceil(times * scale)
      const start = performance.now()
      run(count)
      // The first batch of each warms up and does not count.
      if (batch > 0) batches[index].push(((performance.now() - start) * 1e6) / count)
    }
  }
  const ns = batches.map(median)
  return {
    workload: name,
    subjects: all.map((subject, index) => ({
      name: subject.name,
      medianNs: Number(ns[index].toFixed(2)),
      leastNs: Number(Math.min(...batches[index]).toFixed(2)),
      timesOurs: Number((ns[index] / ns[0]).toFixed(2)),
    })),
  }
})

const machine = machineOf(device)
console.log(headline(machine, 'nothing is pinned, and the driver’s own calls are left out'))
console.log(`medians of ${BATCHES} batches, ns each`)
for (const { workload, subjects } of rows) {
  console.log(`\n${workload}`)
  for (const { name, medianNs, timesOurs } of subjects) {
    console.log(`  ${name.padEnd(48)}${medianNs.toFixed(1).padStart(12)}${`${timesOurs.toFixed(1)}×`.padStart(10)}`)
  }
}
save(values.save, 'host', { machine, parameters: { batches: BATCHES, scale }, rows })
device.close()
