// Graphs that share memory: the bytes that 64 graphs of a decoder reserve, in a group and each with memory of its own,
// and the host's time for a launch, alone and in a group, on one stream and on two streams in turns.
// Run: node dist/bench/graph-groups.js [--device D] [--smoke] [--save DIR]

import { formatBytes, KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { Graph } from '../src/core/order/graph.js'
import type { Stream } from '../src/core/order/stream.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { headline, machineOf, median, save } from './machine.js'
import { medianInterval } from './median-interval.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('memory and launches of graphs that share memory')
const values = optionsOf(program)
const device = deviceOf(program)
const LAYERS = values.smoke ? 2 : 8
const ROW = values.smoke ? 4 * KiB : 64 * KiB
const OUTPUT_ROW = 16 * KiB
const COUNT = values.smoke ? 8 : 64
const SEEDS = values.smoke ? 1 : 5
/** Fewer launches than the driver queues before it waits; of these, alone or in a group, in a row. */
const [BATCH, IN_A_ROW] = values.smoke ? [16, 4] : [400, 10]
const BATCHES = values.smoke ? 2 : 1000

const batches = Array.from({ length: COUNT }, (_, index) => (index === 0 ? 1 : (512 / COUNT) * (index + 1)))
const [a, b] = [device.createStream(), device.createStream()]

/** The work of a decoder with `batch` rows: the memory of its layers, and a fill in each. */
function decode(pool: CachingPool, stream: Stream, batch: number): void {
  let hidden = pool.allocate(batch * ROW, stream)
  for (let layer = 0; layer < LAYERS; layer++) {
    using heads = pool.allocate(3 * batch * ROW, stream)
    const next = pool.allocate(batch * ROW, stream)
    heads.fill(layer, 0, 256)
    heads.free()
    using inner = pool.allocate(4 * batch * ROW, stream)
    inner.fill(layer, 0, 256)
    hidden.free()
    hidden = next
  }
  hidden.free()
}

/** The pool's bytes with the graphs of `order`, captured in that order, and the device's bytes beside them. */
function reserve(order: readonly number[], way: 'group' | 'separate') {
  const pool = device.createPool({ maxPoolBytes: '90%' })
  const group = pool.createGraphGroup()
  const freeBefore = device.driver.cuMemGetInfo().freeBytes
  const graphs: Graph[] = []
  for (const batch of order) {
    const work = () => {
      if (way === 'group') group.allocateOutput(batch * OUTPUT_ROW, a).fill(0, 0, 256)
      else pool.allocate(batch * OUTPUT_ROW, a).fill(0, 0, 256)
      decode(pool, a, batch)
    }
    graphs.push(way === 'group' ? group.capture(a, work) : device.capture(a, work))
  }
  const { reservedBytes } = pool.stats()
  const besideBytes = freeBefore - device.driver.cuMemGetInfo().freeBytes - reservedBytes
  for (const graph of graphs) graph.close()
  pool.close()
  return { reservedBytes, besideBytes }
}

function shuffled(list: readonly number[], random: Random): number[] {
  const left = [...list]
  return list.map(() => left.splice(random.below(left.length), 1)[0])
}

function memory() {
  const largest = reserve(batches.slice(-1), 'group')
  const orders: [string, number[]][] = [
    ['ascending', batches],
    ['descending', [...batches].reverse()],
    ...Array.from({ length: SEEDS }, (_, seed): [string, number[]] => [
      `random, seed ${seed + 1}`,
      shuffled(batches, new Random(seed + 1)),
    ]),
  ]
  const rows = orders.map(([order, list]) => {
    const result = reserve(list, 'group')
    return { order, ...result, timesLargest: result.reservedBytes / largest.reservedBytes }
  })
  const separate = reserve(batches, 'separate')
  return {
    graphs: COUNT,
    largest,
    rows,
    separate,
    separateTimesLargest: separate.reservedBytes / largest.reservedBytes,
  }
}

/** Graphs of the same work, alone and in a group: of each two one is captured after the other. */
function newPair(pool: CachingPool, count: number) {
  const group = pool.createGraphGroup()
  const work = () => {
    using scratch = pool.allocate(1 * MiB, a)
    scratch.fill(1, 0, 256)
  }
  const made = Array.from({ length: count }, () => [device.capture(a, work), group.capture(a, work)] as const)
  return { group, alone: made.map(([graph]) => graph), together: made.map(([, graph]) => graph) }
}

/** Nanoseconds of each of some launches in a row, by turns of graphs and streams. */
function launch(graphs: readonly Graph[], streams: readonly Stream[]): number {
  const start = performance.now()
  for (let launch = 0; launch < IN_A_ROW; launch++) {
    graphs[launch % graphs.length].launch(streams[launch % streams.length])
  }
  return ((performance.now() - start) * 1e6) / IN_A_ROW
}

/**
 * The host's time for a launch, alone and in a group. Both take turns every few launches, forwards and backwards, so
 * that the state of host and device is the same for both. The median of the differences of neighbours is told.
 */
function compare(name: string, count: number, streams: readonly Stream[]) {
  const pool = device.createPool()
  const { group, alone, together } = newPair(pool, count)
  const [aloneNs, groupNs]: [number[], number[]] = [[], []]
  for (let batch = -10; batch < BATCHES; batch++) {
    for (let launches = 0; launches < BATCH; launches += 2 * IN_A_ROW) {
      const isBackwards = (launches / (2 * IN_A_ROW)) % 2 === 1
      const [first, second] = isBackwards ? [together, alone] : [alone, together]
      const times = [launch(first, streams), launch(second, streams)]
      if (batch < 0) continue
      aloneNs.push(times[isBackwards ? 1 : 0])
      groupNs.push(times[isBackwards ? 0 : 1])
    }
    device.synchronize()
  }
  const { waits } = group.stats()
  for (const graph of [...alone, ...together]) graph.close()
  pool.close()
  const beyondNs = medianInterval(groupNs.map((ns, index) => ns - aloneNs[index]))
  return { name, aloneNs: median(aloneNs), groupNs: median(groupNs), beyondNs, waits }
}

function launches() {
  const all = [
    compare('one stream', 1, [a]),
    compare('two graphs on one stream', 2, [a]),
    compare('two streams in turns', 2, [a, b]),
  ]
  const rounded = (ns: number) => Number(ns.toFixed(1))
  return all.map(({ name, aloneNs, groupNs, beyondNs, waits }) => {
    return { name, aloneNs: rounded(aloneNs), groupNs: rounded(groupNs), beyondNs: beyondNs.map(rounded), waits }
  })
}

const machine = machineOf(device)
const reserved = memory()
const launched = launches()
console.log(headline(machine, 'its times mean nothing'))
console.log(`largest of ${COUNT} graphs alone: ${formatBytes(reserved.largest.reservedBytes)}`)
for (const { order, reservedBytes, besideBytes, timesLargest } of reserved.rows) {
  const beside = `${formatBytes(Math.max(0, besideBytes))} of the device beside it`
  console.log(`  ${order.padEnd(16)} ${formatBytes(reservedBytes)}, ${timesLargest.toFixed(3)} times; ${beside}`)
}
const { separate, separateTimesLargest } = reserved
console.log(`  without a group  ${formatBytes(separate.reservedBytes)}, ${separateTimesLargest.toFixed(1)} times`)
for (const { name, aloneNs, groupNs, beyondNs } of launched) {
  const [beyond, from, to] = beyondNs
  console.log(
    `${name.padEnd(26)} ${aloneNs} ns a launch alone, ${groupNs} in a group: ${beyond} more (${from} to ${to})`,
  )
}
const parameters = {
  layers: LAYERS,
  rowBytes: ROW,
  outputRowBytes: OUTPUT_ROW,
  batch: BATCH,
  batches: BATCHES,
  inARow: IN_A_ROW,
}
save(values.save, machine.simulated ? 'simulated-graph-groups' : 'h200-graph-groups', {
  machine,
  parameters,
  memory: reserved,
  launches: launched,
})
device.close()
