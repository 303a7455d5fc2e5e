// Runs a file of operations through the caching pool, as an ordinary program that imports the package.
// Run: node dist/bench/rivals/ours.js FILE PASSES DEVICE [TIMINGS]
//
// It prints one line of JSON, a `ProgramResult` of figures.ts. With TIMINGS it reads the clock after each call, counts
// driver calls, and writes the nanoseconds of each call to that file, as 64-bit floats. Otherwise it reads the clock
// only at the ends of parts. Programs in C++ have the same arguments, and print the same (bench/rivals/rival.hpp).

import { writeFileSync } from 'node:fs'
import { hrtime } from 'node:process'
import { type DeviceBuffer, openDevice } from 'cuda-mempool'
import type { ProgramResult, Segment } from './figures.js'
import { readOperations, segmentsOf } from './operations.js'

const CLOCK_READINGS = 1_000_000

process.setUncaughtExceptionCaptureCallback(error => {
  console.error(`error: ${error.message}`)
  process.exit(1)
})

const [file, passes, choice, timings] = process.argv.slice(2)
const operations = readOperations(file)
const { buffer: numbers, bytes: sizes, stream: slots } = operations
const device = openDevice(/^\d+$/.test(choice) ? Number(choice) : (choice as 'auto' | 'simulated'))
const streams = Array.from({ length: operations.streams }, () => device.createStream())
// The default limit is less than the mixes need.
const pool = device.createPool({ maxPoolBytes: '90%' })
const buffers = new Array<DeviceBuffer | null>(operations.buffers).fill(null)
/** Milliseconds, until they are written. */
const durations = new Float64Array(timings === undefined ? 1 : Number(passes) * numbers.length).fill(0)

/** the last reading of the clock, in milliseconds */
const last = new Float64Array(1)

/** Milliseconds. */
function now(): number {
  const [seconds, nanoseconds] = hrtime()
  return seconds * 1e3 + nanoseconds / 1e6
}

/**
 * Notes how long ago the clock was read last. It returns no number, so that V8 makes no object for it: collecting those
 * would count as a slow call of the pool.
 */
function noteDuration(index: number): void {
  const end = now()
  durations[index] = end - last[0]
  last[0] = end
}

function run(from: number, to: number): void {
  for (let operation = from; operation < to; operation++) {
    const number = numbers[operation]
    const bytes = sizes[operation]
    if (bytes === 0) {
      buffers[number]!.free()
      buffers[number] = null
    } else buffers[number] = pool.allocate(bytes, streams[slots[operation]])
  }
}

/**
 * The same, with the clock after each call. The loops are deliberately apart: no test of a mode is in either, and each
 * has its own call sites. `first` is the pass's first duration.
 */
function runTimed(from: number, to: number, first: number): void {
  last[0] = now()
  for (let operation = from; operation < to; operation++) {
    const number = numbers[operation]
    const bytes = sizes[operation]
    if (bytes === 0) {
      buffers[number]!.free()
      buffers[number] = null
    } else buffers[number] = pool.allocate(bytes, streams[slots[operation]])
    noteDuration(first + operation)
  }
}

function clockNs(): number {
  const start = now()
  for (let reading = 0; reading < CLOCK_READINGS; reading++) noteDuration(0)
  return Number((((last[0] - start) * 1e6) / CLOCK_READINGS).toFixed(2))
}

// The driver for GPUs counts on demand only.
if (timings !== undefined) (device.driver as { countCalls?(): void }).countCalls?.()
let counted = new Map<string, number>()

/** Driver calls since the last call of this function. */
function newCalls(): Record<string, number> {
  const now = new Map(device.driver.calls)
  const calls = [...now].map(([name, count]): [string, number] => [name, count - (counted.get(name) ?? 0)])
  counted = now
  return Object.fromEntries(calls.filter(([, count]) => count > 0))
}

function segment(pass: number, from: number, to: number): Segment {
  const start = performance.now()
  if (timings === undefined) run(from, to)
  else runTimed(from, to, pass * numbers.length)
  const ns = Math.round((performance.now() - start) * 1e6)
  if (timings === undefined) return { ns, peakReservedBytes: null, driverCalls: null }
  return { ns, driverCalls: newCalls(), peakReservedBytes: pool.stats().peakReservedBytes }
}

const segments = segmentsOf(operations)
device.synchronize()
newCalls()
const result: ProgramResult = { clockNs: clockNs(), passes: [] }
for (let pass = 0; pass < Number(passes); pass++) {
  result.passes.push(segments.map(([from, to]) => segment(pass, from, to)))
  device.synchronize()
}
if (timings !== undefined)
  writeFileSync(
    timings,
    durations.map(milliseconds => Math.round(milliseconds * 1e6)),
  )
console.log(JSON.stringify(result))
device.close()
