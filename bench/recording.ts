// What a recording costs: a pair of allocate and free that is recorded, without and with call stacks, and a pair after
// a recording by POST /record. Run: node dist/bench/recording.js [--smoke] [--save DIR]

import { KiB, MiB } from '../src/core/base/bytes.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { PoolRecording } from '../src/recordings/trace/recording/pool-recording.js'
import { type RecorderOptions, recorded } from '../src/recordings/trace/recording/recorder.js'
import { Action } from '../src/recordings/trace/trace.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'
import { loopsFor, PER_LIST } from './pool-loops.js'

const program = deviceBenchmark('pairs of allocate and free that are recorded')
const values = optionsOf(program)
const ROUNDS = values.smoke ? 2 : 30
const PAIRS = (values.smoke ? 1 : 4) * PER_LIST
const RECORDING = 'traces/gpt2-train-varlen.pickle.gz'
/** Calls between the line that allocates and the loop. */
const DEPTH = 8

const device = deviceOf(program)
const pool = device.createPool()
const { pairNs } = await loopsFor('recording')

/** The sizes of a recorded run, each as often and in the order that it was asked for. */
async function recordedSizes(): Promise<Float64Array> {
  const { action, bytes } = await readRecording(RECORDING)
  return bytes.filter((_, event) => action[event] === Action.alloc)
}

/** Makes and frees a buffer at the bottom of some calls, as programs do. */
function nested(allocate: () => void, depth: number): void {
  if (depth === 0) allocate()
  else nested(allocate, depth - 1)
}

/** Nanoseconds of a pair in a new recording, the sizes in turn. */
function recordedNs(options: RecorderOptions, sizes: Float64Array): number {
  const wrapped = recorded(pool, options)
  const start = performance.now()
  for (let pair = 0; pair < PAIRS; pair++) nested(() => wrapped.allocate(sizes[pair % sizes.length]).free(), DEPTH)
  return ((performance.now() - start) * 1e6) / PAIRS
}

const small = Float64Array.of(4 * KiB)
const sizes = await recordedSizes()
const rows: [name: string, measure: () => number][] = []
for (const stacks of [false, 1, 2, 4, true] as const)
  rows.push([`stacks: ${stacks}`, () => recordedNs({ stacks }, small)])
rows.push(['last: 1000', () => recordedNs({ last: 1000 }, small)])
for (const stacks of [4, true] as const) {
  rows.push([`stacks: ${stacks}, sizes of GPT-2`, () => recordedNs({ stacks }, sizes)])
  for (const mib of [1, 4, 16]) {
    const options = { stacks, stackMinBytes: mib * MiB }
    rows.push([`stacks: ${stacks}, stackMinBytes: ${mib} MiB, sizes of GPT-2`, () => recordedNs(options, sizes)])
  }
}

const figures = (name: string, ns: readonly number[]) => ({
  name,
  leastNs: Number(Math.min(...ns).toFixed(2)),
  medianNs: Number(median(ns).toFixed(2)),
})

// Before wrappers have been used, after which every free looks for one.
const recording = new PoolRecording(pool, false)
pairNs(pool, undefined, small[0], PAIRS)
recording.stop()
pairNs(pool, undefined, small[0], PAIRS)
const after = Array.from({ length: ROUNDS }, () => pairNs(pool, undefined, small[0], PAIRS))

const times = rows.map(() => [] as number[])
for (let round = 0; round < ROUNDS; round++) for (const [row, [, measure]] of rows.entries()) times[row].push(measure())
const results = [
  figures('after a recording by POST /record', after),
  ...rows.map(([name], row) => figures(name, times[row])),
]

const machine = machineOf(device)
console.log(headline(machine, 'host time only'))
console.log(`${ROUNDS} rounds of ${PAIRS} pairs: ns per pair (least, median)`)
for (const { name, leastNs, medianNs } of results) {
  console.log(`  ${name.padEnd(60)}${leastNs.toFixed(1).padStart(10)}${medianNs.toFixed(1).padStart(10)}`)
}
save(values.save, 'recording', { machine, parameters: { rounds: ROUNDS, pairs: PAIRS, depth: DEPTH }, results })
device.close()
