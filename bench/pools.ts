// Host time of the pools that are simpler than the caching one, through the public API with everything on, beside the
// driver's own calls in the same process. The first row is a control: what the engine takes to make an object as large as a
// buffer and the loop to keep it, below which no pool can be. Run: node dist/bench/pools.js [--device D] [--smoke] [--save DIR]

import { parseArgs } from 'node:util'
import { KiB, MiB } from '../src/base/bytes.js'
import { type Device, openDevice, parseDeviceChoice } from '../src/device.js'
import { POOL_ATTRIBUTE } from '../src/driver/constants.js'
import type { ArenaPool, BlockPool, DeviceBuffer, Stream } from '../src/index.js'
import { machineOf, median, save } from './machine.js'

const { values } = parseArgs({
  options: { device: { type: 'string' }, smoke: { type: 'boolean', default: false }, save: { type: 'string' } },
})
const device = openDevice(parseDeviceChoice(values.device ?? process.env['CUDA_MEMPOOL_DEVICE'] ?? 'auto'))
const scale = values.smoke ? 0.01 : 1
const BATCHES = values.smoke ? 3 : 100
const KEPT = 1024 // buffers that stay referenced, so that none is optimised away; also the allocations between two resets
const BLOCKS = 2048
const SLOW_BATCHES = 5
/** Objects of one batch fill the engine's nursery of 16 MiB, so that each batch has its share of collections, and the median too. */
const CALLS = 400 * KEPT

interface Row {
  readonly name: string
  readonly calls: number
  run(calls: number): void
}

/** The clock is read outside of the loops: Node's own code for it would use up much of what the compiler puts into one function. */
function nsPerCall(calls: number, loop: () => void): number {
  const start = performance.now()
  loop()
  return ((performance.now() - start) * 1e6) / calls
}

/** As large as a buffer. */
class Control {
  constructor(
    readonly home: object,
    readonly tag: number,
  ) {}
}

function controlObjects(home: object, calls: number): void {
  const kept = new Array<Control>(KEPT)
  for (let call = 0; call < calls; call++) kept[call & (KEPT - 1)] = new Control(home, call)
}

/** Allocations from an arena that is reset after every `KEPT` of them, which counts as part of them. */
function arenaAllocations(arena: ArenaPool, stream: Stream, bytes: number, calls: number): void {
  const kept = new Array<DeviceBuffer>(KEPT)
  for (let call = 0; call < calls; call++) {
    const place = call & (KEPT - 1)
    if (place === 0) arena.reset(stream)
    kept[place] = arena.allocate(bytes, stream)
  }
}

function blockPairs(pool: BlockPool, stream: Stream, bytes: number, calls: number): void {
  const kept = new Array<DeviceBuffer>(KEPT)
  for (let call = 0; call < calls; call++) {
    const buffer = pool.allocate(bytes, stream)
    kept[call & (KEPT - 1)] = buffer
    buffer.free()
  }
}

/** Takes half of the blocks and gives them back, again and again: no block is the one that was freed last. */
function blockRounds(pool: BlockPool, stream: Stream, bytes: number, calls: number): void {
  const held = new Array<DeviceBuffer>(KEPT)
  for (let round = 0; round < calls / KEPT; round++) {
    for (let place = 0; place < KEPT; place++) held[place] = pool.allocate(bytes, stream)
    for (let place = 0; place < KEPT; place++) held[place].free()
  }
}

function driverPairs(allocate: (bytes: number) => number, free: (ptr: number) => void, bytes: number, calls: number) {
  for (let call = 0; call < calls; call++) free(allocate(bytes))
}

function rowsFor(opened: Device, bytes: number): Row[] {
  const { driver } = opened
  const stream = opened.createStream()
  const { handle } = opened.createStream()
  const arena = opened.createArenaPool({ bytes: KEPT * bytes })
  const growing = opened.createArenaPool({ bytes: MiB, maxBytes: KEPT * bytes })
  const blocks = opened.createBlockPool({ blockBytes: bytes, count: BLOCKS })
  // Three kinds of pool are alive and in use, so that no call site of the library knows only one.
  for (const pool of [arena, blocks, opened.createPlainPool()]) {
    for (let count = 0; count < 200; count++) pool.allocate(bytes).free()
  }
  return [
    { name: 'an object like a buffer, kept', calls: CALLS, run: count => controlObjects(arena, count) },
    { name: 'arena allocate', calls: CALLS, run: count => arenaAllocations(arena, stream, bytes, count) },
    { name: 'arena allocate, grown', calls: CALLS, run: count => arenaAllocations(growing, stream, bytes, count) },
    { name: 'block pair', calls: CALLS, run: count => blockPairs(blocks, stream, bytes, count) },
    { name: `block pair, ${KEPT} held`, calls: CALLS, run: count => blockRounds(blocks, stream, bytes, count) },
    {
      name: 'cuMemAllocAsync/cuMemFreeAsync, threshold max',
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
const rows = rowsFor(device, 4 * KiB)
const times = rows.map((): number[] => [])
// The driver's rows come last, so that what the simulated one leaves to collect is not collected in ours.
for (const isOurs of [true, false]) {
  for (let batch = 0; batch <= BATCHES; batch++) {
    for (const [index, { calls, run }] of rows.entries()) {
      // The driver's slow calls get fewer batches; the first batch of each warms up and does not count.
      if ((calls === CALLS) !== isOurs || (calls < 1000 && batch > SLOW_BATCHES)) continue
      const count = Math.ceil(calls * scale)
      const ns = nsPerCall(count, () => run(count))
      if (batch > 0) times[index].push(ns)
    }
  }
}
const results = rows.map(({ name }, index) => ({
  name,
  medianNs: Number(median(times[index]).toFixed(2)),
  leastNs: Number(Math.min(...times[index]).toFixed(2)),
}))

const machine = machineOf(device)
console.log(
  `${machine.device}${machine.simulated ? ' (simulated: the driver rows are not a GPU’s)' : ''}, CUDA ${machine.driverVersion}, driver ${machine.gpuDriver ?? '–'}, ${machine.cpu}, ${machine.cores} cores, Node ${machine.node}`,
)
console.log(`4 KiB, medians of ${BATCHES} batches and the least, ns per call or per pair of calls`)
for (const { name, medianNs, leastNs } of results) {
  console.log(`  ${name.padEnd(48)}${medianNs.toFixed(1).padStart(10)}${leastNs.toFixed(1).padStart(10)}`)
}
save(values.save, 'pools', { machine, parameters: { batches: BATCHES, bytes: 4 * KiB, kept: KEPT, scale }, results })
device.close()
