// Graphs that share memory: the bytes that 64 graphs of a decoder reserve, in a group and each with memory of its own,
// and the host's time for a launch, alone and in a group, on one stream and on two streams in turns.
// Run: node dist/bench/graph-groups.js [--device D] [--smoke] [--save DIR]

import { formatBytes, KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { Graph } from '../src/core/order/graph.js'
import type { Stream } from '../src/core/order/stream.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('memory and launches of graphs that share memory')
const values = optionsOf(program)
const device = deviceOf(program)
const LAYERS = values.smoke ? 2 : 8
const ROW = values.smoke ? 4 * KiB : 64 * KiB
const OUTPUT_ROW = 16 * KiB
const COUNT = values.smoke ? 8 : 64
const SEEDS = values.smoke ? 1 : 5
/** Fewer launches than the driver queues before it waits. */
const BATCH = values.smoke ? 20 : 400
const BATCHES = values.smoke ? 2 : 250

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

/** Nanoseconds of a launch, by subject: batches by turns, forwards and backwards. */
function launches() {
  const pool = device.createPool()
  const group = pool.createGraphGroup()
  const spread = pool.createGraphGroup()
  const work = (stream: Stream) => () => {
    using scratch = pool.allocate(1 * MiB, stream)
    scratch.fill(1, 0, 256)
  }
  const alone = [device.capture(a, work(a)), device.capture(b, work(b))]
  const together = [group.capture(a, work(a)), group.capture(b, work(b))]
  const apart = [spread.capture(a, work(a)), spread.capture(b, work(b))]
  const subjects: [string, readonly Graph[], readonly Stream[]][] = [
    ['alone, one stream', [alone[0]], [a]],
    ['in a group, one stream', [together[0]], [a]],
    ['alone, two graphs on one stream', alone, [a]],
    ['in a group, two graphs on one stream', together, [a]],
    ['alone, two streams in turns', alone, [a, b]],
    ['in a group, two streams in turns', apart, [a, b]],
  ]
  const times = subjects.map((): number[] => [])
  for (let batch = -10; batch < BATCHES; batch++) {
    const turns = [...subjects.entries()]
    for (const [index, [, graphs, streams]] of batch % 2 === 0 ? turns : turns.reverse()) {
      const start = performance.now()
      for (let launch = 0; launch < BATCH; launch++) {
        graphs[launch % graphs.length].launch(streams[launch % streams.length])
      }
      const ns = ((performance.now() - start) * 1e6) / BATCH
      device.synchronize()
      if (batch >= 0) times[index].push(ns)
    }
  }
  const rows = subjects.map(([name], index) => ({ name, medianNs: Math.round(median(times[index])) }))
  const { waits } = spread.stats()
  for (const graph of [...alone, ...together, ...apart]) graph.close()
  pool.close()
  const beyond = (index: number) =>
    Math.round(median(times[index].map((alone, batch) => times[index + 1][batch] - alone)))
  return { rows, waits, beyondNs: { oneStream: beyond(0), twoGraphs: beyond(2), twoStreams: beyond(4) } }
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
for (const { name, medianNs } of launched.rows) console.log(`${name.padEnd(38)} ${medianNs} ns a launch`)
const { oneStream, twoGraphs, twoStreams } = launched.beyondNs
console.log(`beyond alone, medians of pairs: ${oneStream} ns, two graphs ${twoGraphs}, two streams ${twoStreams}`)
const parameters = { layers: LAYERS, rowBytes: ROW, outputRowBytes: OUTPUT_ROW, batch: BATCH, batches: BATCHES }
save(values.save, machine.simulated ? 'simulated-graph-groups' : 'h200-graph-groups', {
  machine,
  parameters,
  memory: reserved,
  launches: launched,
})
device.close()
