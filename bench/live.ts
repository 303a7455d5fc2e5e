// The cost of being watched: the cached pair of allocate and free, alone, served, and watched ten times a second, in
// one process. Each way runs for a tenth of a second, by turns, hundreds of times, and the ratio of neighbours counts:
// what disturbs a machine for longer disturbs both. The time between two batches counts, too: the program answers its
// readers there. Run: node dist/bench/live.js [--smoke] [--save DIR]

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { KiB } from '../src/core/base/bytes.js'
import { serve } from '../src/live/serve.js'
import { headline, machineOf, median, save } from './machine.js'
import { medianInterval } from './median-interval.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'
import { loopsFor, PER_LIST } from './pool-loops.js'

const program = deviceBenchmark('the cached pair of a pool that is served and watched')
const values = optionsOf(program)
const ROUNDS = values.smoke ? 2 : 300
/** A reader gets one event in it. */
const TURN_MS = values.smoke ? 1 : 100
/** Before a turn is timed, so that caches are as warm as in the others. */
const WARM_MS = TURN_MS / 20
const PAIRS = 16 * PER_LIST
const BYTES = 4 * KiB

/** A reader of /events in a thread of its own. A path makes it read, and null end; it answers once it does. */
const READER = `
  const { parentPort } = require('node:worker_threads')
  let asked = null
  parentPort.on('message', path => {
    if (path === null) return asked.destroy()
    asked = require('node:http').get({ socketPath: path, path: '/events?ms=100', agent: false }, response => {
      response.once('data', () => parentPort.postMessage('reads')).resume()
      response.once('close', () => parentPort.postMessage('ended')).on('error', () => {})
    })
    asked.on('error', () => {})
  })`

const device = deviceOf(program)
const pool = device.createPool()
const { pairNs } = await loopsFor('live')
const reader = new Worker(READER, { eval: true })

/** Nanoseconds that this thread has run: its own work, without the times in which another program has its core. */
function threadNs(): number {
  try {
    return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ')[0])
  } catch {
    return performance.now() * 1e6 // the kernel may have been built without it
  }
}

/** Runs pairs for some milliseconds, with the event loop's work after each batch; nanoseconds of a pair. */
async function run(ms: number): Promise<number> {
  const start = performance.now()
  const startNs = threadNs()
  let pairs = 0
  let now = start
  while (now - start < ms) {
    pairNs(pool, undefined, BYTES, PAIRS)
    pairs += PAIRS
    await setImmediate()
    now = performance.now()
  }
  return (threadNs() - startNs) / pairs
}

async function turn(): Promise<number> {
  await run(WARM_MS)
  return await run(TURN_MS)
}

const WAYS: readonly (readonly [name: string, measure: () => Promise<number>])[] = [
  ['alone', turn],
  [
    'served',
    async () => {
      await using _server = await serve(pool)
      return await turn()
    },
  ],
  [
    'watched',
    async () => {
      await using server = await serve(pool)
      reader.postMessage(server.socketPath)
      await once(reader, 'message')
      const ns = await turn()
      reader.postMessage(null)
      await once(reader, 'message')
      return ns
    },
  ],
  ['alone again', turn],
]

const times = new Map(WAYS.map(([name]) => [name, [] as number[]]))
await run(5 * TURN_MS)
for (let round = 0; round < ROUNDS; round++) {
  // there and back, so that what comes first gains nothing
  const ways = round % 2 === 0 ? WAYS : [...WAYS].reverse()
  for (const [name, measure] of ways) times.get(name)!.push(await measure())
}
await reader.terminate()

/** Of each round, the mean of the pool alone before the other ways and after them. */
const alone = times.get('alone')!.map((before, round) => (before + times.get('alone again')![round]) / 2)

const ratios = (ns: readonly number[]) => medianInterval(ns.map((value, round) => value / alone[round]))

const results = [...times].map(([name, ns]) => {
  const [ratio, ratioFrom, ratioTo] = ratios(ns).map(value => Number(value.toFixed(4)))
  return {
    name,
    leastNs: Number(Math.min(...ns).toFixed(2)),
    medianNs: Number(median(ns).toFixed(2)),
    ratio,
    ratioFrom,
    ratioTo,
  }
})

const machine = machineOf(device)
console.log(headline(machine, 'host time only'))
console.log(
  `${BYTES} bytes, ${ROUNDS} rounds of ${TURN_MS} ms each: ns per pair (least, median), and the ratio to alone`,
)
for (const { name, leastNs, medianNs, ratio, ratioFrom, ratioTo } of results) {
  const ns = [leastNs, medianNs].map(value => value.toFixed(1).padStart(8)).join('')
  console.log(
    `  ${name.padEnd(14)}${ns}   ${ratio.toFixed(4)}  (95 %: ${ratioFrom.toFixed(4)} to ${ratioTo.toFixed(4)})`,
  )
}
save(values.save, 'live', { machine, parameters: { rounds: ROUNDS, turnMs: TURN_MS, bytes: BYTES }, results })
device.close()
