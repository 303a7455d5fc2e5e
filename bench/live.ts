// The cost of being watched: the cached pair of allocate and free, alone, served, and watched ten times a
// second, by turns in one process. Then the pair while it is recorded, and after a recording. The time between two
// batches counts, too: the program answers its readers there. Run: node dist/bench/live.js [--smoke] [--save DIR]

import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { KiB } from '../src/base/bytes.js'
import { serve } from '../src/live/serve.js'
import { PoolRecording } from '../src/trace/recording/pool-recording.js'
import { recorded } from '../src/trace/recording/recorder.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'
import { loopsFor, PER_LIST } from './pool-loops.js'

const program = deviceBenchmark('the cached pair of a pool that is served, watched and recorded')
const values = optionsOf(program)
const TURNS = values.smoke ? 2 : 60
const BATCHES = values.smoke ? 2 : 60
const PAIRS = (values.smoke ? 1 : 400) * PER_LIST
const RECORDED_PAIRS = (values.smoke ? 1 : 10) * PER_LIST
const RECORDED_BATCHES = values.smoke ? 2 : 20
const BYTES = 4 * KiB

/** A reader of /events in a thread of its own; it says when the first event has come. */
const READER = `
  const { parentPort, workerData } = require('node:worker_threads')
  const asked = require('node:http').get({ socketPath: workerData, path: '/events?ms=100' }, response => {
    response.once('data', () => parentPort.postMessage('reads')).resume()
  })
  asked.on('error', () => {})
  parentPort.once('message', () => process.exit())`

const device = deviceOf(program)
const pool = device.createPool()
const { pairNs } = await loopsFor('live')

/** Nanoseconds of a pair, with the event loop's work after each batch. */
async function turn(): Promise<number> {
  const start = performance.now()
  for (let batch = 0; batch < BATCHES; batch++) {
    pairNs(pool, undefined, BYTES, PAIRS)
    await setImmediate()
  }
  return ((performance.now() - start) * 1e6) / (BATCHES * PAIRS)
}

const ROWS: Readonly<Record<string, () => Promise<number>>> = {
  alone: turn,
  served: async () => {
    await using _server = await serve(pool)
    return await turn()
  },
  watched: async () => {
    await using server = await serve(pool)
    const reader = new Worker(READER, { eval: true, workerData: server.socketPath })
    await once(reader, 'message')
    const ns = await turn()
    reader.postMessage('end')
    await once(reader, 'exit')
    return ns
  },
}

const times = new Map(Object.keys(ROWS).map(name => [name, [] as number[]]))
await turn()
for (let round = 0; round < TURNS; round++) {
  for (const [name, measure] of Object.entries(ROWS)) times.get(name)!.push(await measure())
}

/** The least and the median of a row, in nanoseconds. */
const figures = (name: string, ns: readonly number[]) => ({
  name,
  leastNs: Number(Math.min(...ns).toFixed(2)),
  medianNs: Number(median(ns).toFixed(2)),
})
const results = [...times].map(([name, ns]) => figures(name, ns))

// Before wrappers have been used, after which every free looks for one.
const recording = new PoolRecording(pool, false)
pairNs(pool, undefined, BYTES, RECORDED_PAIRS)
recording.stop()
await turn()
const after: number[] = []
for (let round = 0; round < TURNS; round++) after.push(await turn())
results.push(figures('after a recording by POST /record', after))

/** Makes and frees a buffer at the bottom of some calls, as programs do. */
function nested(allocate: () => void, depth: number): void {
  if (depth === 0) allocate()
  else nested(allocate, depth - 1)
}

for (const stacks of [false, 4, true] as const) {
  const ns = Array.from({ length: RECORDED_BATCHES }, () => {
    const wrapped = recorded(pool, { stacks })
    const start = performance.now()
    for (let pair = 0; pair < RECORDED_PAIRS; pair++) nested(() => wrapped.allocate(BYTES).free(), 8)
    return ((performance.now() - start) * 1e6) / RECORDED_PAIRS
  })
  results.push(figures(`recorded(pool, { stacks: ${stacks} })`, ns))
}

const machine = machineOf(device)
console.log(headline(machine, 'host time only'))
console.log(`${BYTES} bytes, ${TURNS} turns of ${BATCHES} × ${PAIRS} pairs, ns per pair`)
for (const { name, leastNs, medianNs } of results) {
  console.log(`  ${name.padEnd(40)}${leastNs.toFixed(1).padStart(10)}${medianNs.toFixed(1).padStart(10)}`)
}
save(values.save, 'live', {
  machine,
  parameters: { turns: TURNS, batches: BATCHES, pairs: PAIRS, bytes: BYTES },
  results,
})
device.close()
