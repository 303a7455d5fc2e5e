// Host time of the pools that are simpler than the caching one, through the public API with everything on, beside the
// driver's own calls in the same process. The first row is a control: V8's time to create an object as large as a
// buffer, and the loop's to keep it, a lower bound for every pool. Run: node dist/bench/pools.js [--device D]
// [--smoke] [--save DIR]

import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Device } from '../src/core/device/device.js'
import { POOL_ATTRIBUTE } from '../src/core/driver/constants.js'
import { type Batch, Core, quietText } from './core-noise.js'
import { headline, machineOf, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'
import { loopsFor, objectNs } from './pool-loops.js'

const program = deviceBenchmark("host time of arenas and block pools, beside the driver's own calls")
const values = optionsOf(program)
const device = deviceOf(program)
const scale = values.smoke ? 0.01 : 1
const BATCHES = values.smoke ? 3 : 100
const HELD = 1024 // allocations between two resets of an arena, and blocks that are held
const BLOCKS = 2048
const SLOW_BATCHES = Math.min(5, BATCHES) // of the driver's slow calls
const SHORT_RUNS = 300
/**
 * Objects of one batch fill V8's nursery of 16 MiB, so that each batch and the median have their share of
 * collections.
 */
const CALLS = 400 * HELD

interface Row {
  readonly name: string
  /** rows of one are measured by turns, one group after the other */
  readonly group: 'ours' | 'ours, held' | 'driver'
  readonly calls: number
  /** nanoseconds of a call or a pair */
  run(calls: number): number
}

function driverPairs(allocate: (bytes: number) => number, free: (ptr: number) => void, bytes: number, calls: number) {
  const start = performance.now()
  for (let call = 0; call < calls; call++) free(allocate(bytes))
  return ((performance.now() - start) * 1e6) / calls
}

async function rowsFor(opened: Device, bytes: number): Promise<Row[]> {
  const { driver } = opened
  const stream = opened.createStream()
  const { handle } = opened.createStream()
  const arena = opened.createArenaPool({ bytes: HELD * bytes })
  const growing = opened.createArenaPool({ bytes: MiB, maxPoolBytes: HELD * bytes })
  const blocks = opened.createBlockPool({ blockBytes: bytes, count: BLOCKS })
  // Three kinds of pool are alive and in use, so that no call site of the library knows only one.
  for (const pool of [arena, blocks, opened.createPlainPool()]) {
    for (let count = 0; count < 200; count++) pool.allocate(bytes).free()
  }
  const ofArena = await loopsFor('arena')
  const ofGrowing = await loopsFor('arena, grown')
  const ofBlocks = await loopsFor('blocks')
  return [
    { name: 'an object like a buffer, kept', group: 'ours', calls: CALLS, run: count => objectNs(arena, count) },
    {
      name: 'arena allocate',
      group: 'ours',
      calls: CALLS,
      run: count => ofArena.arenaNs(arena, stream, bytes, count, HELD),
    },
    {
      name: 'arena allocate, grown',
      group: 'ours',
      calls: CALLS,
      run: count => ofGrowing.arenaNs(growing, stream, bytes, count, HELD),
    },
    { name: 'block pair', group: 'ours', calls: CALLS, run: count => ofBlocks.pairNs(blocks, stream, bytes, count) },
    {
      name: `block pair, ${HELD} held`,
      group: 'ours, held',
      calls: CALLS,
      run: count => ofBlocks.roundsNs(blocks, stream, bytes, count, HELD),
    },
    {
      name: 'cuMemAllocAsync/cuMemFreeAsync, threshold max',
      group: 'driver',
      calls: 10_000,
      run: count =>
        driverPairs(
          size => driver.cuMemAllocAsync(size, handle),
          ptr => driver.cuMemFreeAsync(ptr, handle),
          bytes,
          count,
        ),
    },
    {
      name: 'cuMemAlloc/cuMemFree',
      group: 'driver',
      calls: 500,
      run: count =>
        driverPairs(
          size => driver.cuMemAlloc(size),
          ptr => driver.cuMemFree(ptr),
          bytes,
          count,
        ),
    },
  ]
}

const defaultPool = device.driver.cuDeviceGetDefaultMemPool(device.context.device)
device.driver.cuMemPoolSetAttribute(defaultPool, POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, Infinity)
const rows = await rowsFor(device, 4 * KiB)
const core = new Core()
const batches = rows.map((): Batch<number>[] => [])
// Objects that survive collections make the young generation grow, and slow down later subjects. So subjects that
// hold buffers
// come later, and the simulated driver's garbage comes last.
for (const present of ['ours', 'ours, held', 'driver']) {
  // Short runs, so that the compiler has seen each loop end before it optimises it: else each run would end in a
  // bailout.
  const toWarmUp = rows.filter(({ group }) => group === present && group !== 'driver')
  for (const { run } of toWarmUp) for (let short = 0; short < SHORT_RUNS; short++) run(HELD)
  for (let batch = 0; batch <= BATCHES; batch++) {
    for (const [index, { group, calls, run }] of rows.entries()) {
      // The driver's slow calls get fewer batches; the first batch of each warms up and does not count.
      if (group !== present || (calls < 1000 && batch > SLOW_BATCHES)) continue
      const measured = core.batch(() => run(Math.ceil(calls * scale)))
      if (batch > 0) batches[index].push(measured)
    }
  }
}
const results = rows.map(({ name }, index) => ({ name, ...core.figures(batches[index], 2, ns => ns) }))

const machine = machineOf(device)
console.log(headline(machine, 'the driver rows are not a GPU’s'))
console.log(`4 KiB, ${BATCHES} batches (cuMemAlloc: ${SLOW_BATCHES}), ns per call or per pair of calls`)
console.log(core.legend())
const line = (name: string, ...columns: string[]) =>
  console.log(`  ${name.padEnd(48)}${columns.map(column => column.padStart(14)).join('')}`)
line('', 'median', 'least', 'quiet', 'young MiB')
for (const { name, medianNs, leastNs, youngMiB, ...quiet } of results) {
  line(name, medianNs.toFixed(1), leastNs.toFixed(1), quietText(quiet, 1), youngMiB.toFixed(0))
}
const parameters = { batches: BATCHES, slowBatches: SLOW_BATCHES, bytes: 4 * KiB, held: HELD, scale }
save(values.save, 'pools', { machine, parameters, control: core.control(), results })
device.close()
