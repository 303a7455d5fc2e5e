// The first use of pinned memory: what the caller waits for, how long Node stands still, and when the memory is pinned;
// what pinning is made of; and the rate of copies from memory on each NUMA node. Each round has a new pool, and the
// subjects take turns. Run: node dist/bench/host-first-use.js [--device D] [--smoke] [--save DIR]

import { setImmediate } from 'node:timers/promises'
import { formatBytes, GiB, KiB, MiB } from '../src/core/base/bytes.js'
import { StagingBuffers } from '../src/core/driver/staging-buffers.js'
import type { DeviceBuffer, HostPool, HostPoolOptions } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('the first use of pinned memory, and copies from each NUMA node')
const values = optionsOf(program)
const device = deviceOf(program)
const { driver } = device
const ROUNDS = values.smoke ? 2 : 15
const SIZES = values.smoke ? [64 * KiB, 1 * MiB] : [64 * KiB, 1 * MiB, 16 * MiB, 256 * MiB]
const PART_SIZES = values.smoke ? [1 * MiB] : [1 * MiB, 16 * MiB, 1 * GiB]
const COPY_BYTES = values.smoke ? 1 * MiB : 256 * MiB
const PORTABLE = 1

/** Milliseconds of one first use. */
interface FirstUse {
  /** the call itself */
  readonly callMs: number
  /** the longest time for which Node stood still, the call included */
  readonly stallMs: number
  /** until the memory is pinned and usable */
  readonly pinnedMs: number
}

/** Times `use`. Meanwhile turns of the event loop tell how long each takes. */
async function time(use: () => unknown): Promise<FirstUse> {
  await setImmediate()
  const start = performance.now()
  const used = use()
  const callMs = performance.now() - start
  let [stallMs, isPinned, turn] = [callMs, false, performance.now()]
  const pinned = Promise.resolve(used).then(() => {
    isPinned = true
    return performance.now() - start
  })
  while (!isPinned) {
    await setImmediate()
    const now = performance.now()
    stallMs = Math.max(stallMs, now - turn)
    turn = now
  }
  return { callMs, stallMs, pinnedMs: used instanceof Promise ? await pinned : callMs }
}

type Use = (pool: HostPool, bytes: number) => unknown

/** What is timed for each size. */
const uses: readonly { readonly name: string; readonly options?: HostPoolOptions; readonly use: Use }[] = [
  { name: 'allocate', use: (pool, bytes) => void pool.allocate(bytes) },
  {
    name: 'allocate, with segments of 16 MiB',
    options: { segmentBytes: 16 * MiB },
    use: (pool, bytes) => void pool.allocate(bytes),
  },
  { name: 'allocateSoon', use: (pool, bytes) => pool.allocateSoon(bytes) },
  { name: 'reserveSoon', use: (pool, bytes) => pool.reserveSoon(bytes) },
]

async function firstUses(bytes: number) {
  const source = device.createPool().allocate(bytes)
  const taken = [...uses.map(({ name }) => name), 'read'].map(name => ({ name, rounds: [] as FirstUse[] }))
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, { options, use }] of uses.entries()) {
      const pool = device.createHostPool(options)
      taken[index].rounds.push(await time(() => use(pool, bytes)))
      pool.close()
    }
    StagingBuffers.of(device.context).close()
    taken[uses.length].rounds.push(await time(() => source.read()))
  }
  source.free()
  return taken.map(({ name, rounds }) => ({ use: name, bytes, first: shown(rounds[0]), median: medians(rounds) }))
}

const rounded = (ms: number) => Number(ms.toFixed(3))
const shown = ({ callMs, stallMs, pinnedMs }: FirstUse) => ({
  callMs: rounded(callMs),
  stallMs: rounded(stallMs),
  pinnedMs: rounded(pinnedMs),
})
const medians = (rounds: readonly FirstUse[]) =>
  shown({
    callMs: median(rounds.map(({ callMs }) => callMs)),
    stallMs: median(rounds.map(({ stallMs }) => stallMs)),
    pinnedMs: median(rounds.map(({ pinnedMs }) => pinnedMs)),
  })

/** The parts of pinning in milliseconds, with and without huge pages, and after another thread has filled them. */
async function parts(bytes: number) {
  const kinds = [
    { pages: 'as the system gives them', isHuge: false, isFilled: false },
    { pages: 'as the system gives them, filled before', isHuge: false, isFilled: true },
    { pages: 'huge', isHuge: true, isFilled: false },
    { pages: 'huge, filled before', isHuge: true, isFilled: true },
  ].map(kind => ({ ...kind, fillMs: [] as number[], pinMs: [] as number[], unpinMs: [] as number[] }))
  for (let round = 0; round < ROUNDS; round++) {
    for (const kind of kinds) {
      const memory = new Uint8Array(bytes)
      if (kind.isHuge) driver.placeHost(memory, -1)
      const start = performance.now()
      if (kind.isFilled) await driver.fillHost(memory)
      const filled = performance.now()
      driver.cuMemHostRegister(memory, PORTABLE)
      const pinned = performance.now()
      driver.cuMemHostUnregister(memory)
      kind.fillMs.push(filled - start)
      kind.pinMs.push(pinned - filled)
      kind.unpinMs.push(performance.now() - pinned)
    }
  }
  return kinds.map(({ pages, fillMs, pinMs, unpinMs }) => ({
    bytes,
    pages,
    fillMs: rounded(median(fillMs)),
    pinMs: rounded(median(pinMs)),
    unpinMs: rounded(median(unpinMs)),
  }))
}

/** GB/s between the device and memory on the device's own node, on each node, and where the system puts it. */
function copyRates() {
  const stream = device.createStream()
  const target = device.createPool().allocate(COPY_BYTES, stream)
  const nodes = [undefined, ...driver.hostNodes()]
  const pools = nodes.map(numaNode => device.createHostPool(numaNode === undefined ? {} : { numaNode }))
  const unbound = new Uint8Array(COPY_BYTES)
  driver.cuMemHostRegister(unbound, PORTABLE)
  const memories = [
    ...pools.map((pool, index) => {
      const buffer = pool.allocate(COPY_BYTES)
      return {
        node: nodes[index] ?? `the device's own, ${pool.numaNode ?? 'which is unknown'}`,
        to: () => buffer.copyTo(target),
        from: () => buffer.copyFrom(target),
      }
    }),
    {
      node: 'unbound',
      to: () => target.write(unbound),
      from: () => driver.cuMemcpyDtoHAsync(unbound, target.ptr, stream.handle),
    },
  ].map(memory => ({ ...memory, toRates: [] as number[], fromRates: [] as number[] }))
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { to, from, toRates, fromRates } of memories) {
      // The first round warms up and does not count.
      const [toRate, fromRate] = [rateOf(to, target), rateOf(from, target)]
      if (round > 0) toRates.push(toRate) && fromRates.push(fromRate)
    }
  }
  driver.cuMemHostUnregister(unbound)
  for (const pool of pools) pool.close()
  return memories.map(({ node, toRates, fromRates }) => ({
    node,
    toDeviceGBs: rounded(median(toRates)),
    fromDeviceGBs: rounded(median(fromRates)),
  }))
}

function rateOf(copy: () => void, { stream }: DeviceBuffer): number {
  stream.synchronize()
  const start = performance.now()
  copy()
  stream.synchronize()
  return COPY_BYTES / ((performance.now() - start) * 1e6)
}

const machine = machineOf(device)
const firstUse = []
for (const bytes of SIZES) firstUse.push(...(await firstUses(bytes)))
const pinning = []
for (const bytes of PART_SIZES) pinning.push(...(await parts(bytes)))
const copies = copyRates()

console.log(headline(machine, 'nothing is pinned, and the times mean nothing'))
console.log(`NUMA nodes of the host: ${driver.hostNodes().join(', ') || 'not known'}; medians of ${ROUNDS} rounds\n`)
console.log('first use                                  size      call ms   stalled ms    pinned ms   (first of all)')
for (const { use, bytes, median: middle, first } of firstUse) {
  const row = [middle.callMs, middle.stallMs, middle.pinnedMs].map(ms => ms.toFixed(3).padStart(12)).join(' ')
  console.log(`${use.padEnd(36)}${formatBytes(bytes).padStart(11)}${row}   (${first.callMs.toFixed(3)})`)
}
console.log('\npinning, with pages                        size      fill ms       pin ms     unpin ms')
for (const { pages, bytes, fillMs, pinMs, unpinMs } of pinning) {
  const row = [fillMs, pinMs, unpinMs].map(ms => ms.toFixed(3).padStart(12)).join(' ')
  console.log(`${pages.padEnd(40)}${formatBytes(bytes).padStart(7)}${row}`)
}
console.log('\nmemory on node                    to the device   from the device, GB/s')
for (const { node, toDeviceGBs, fromDeviceGBs } of copies) {
  console.log(`${`${node}`.padEnd(36)}${toDeviceGBs.toFixed(1).padStart(11)}${fromDeviceGBs.toFixed(1).padStart(18)}`)
}
const parameters = { rounds: ROUNDS, copyBytes: COPY_BYTES, numaNodes: driver.hostNodes() }
save(values.save, 'host-first-use', { machine, parameters, firstUse, pinning, copies })
device.close()
