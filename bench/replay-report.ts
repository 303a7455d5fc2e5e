// How long the report of a long recording takes on the simulated device: all default policies with their times, and
// one policy without times. Host time only, one thread.
// Run: node dist/bench/replay-report.js [--events N] [--long N] [--smoke] [--save DIR]

import os from 'node:os'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { replay } from '../src/recordings/trace/replay.js'
import type { ReplayOptions } from '../src/recordings/trace/replay-options.js'
import { save } from './machine.js'
import { type BenchOptions, benchmark, optionsOf } from './options.js'
import { trainingRun } from './training-run.js'

const program = benchmark('how long the report of a long recording takes')
  .option('--events <n>', 'events for all default policies', '1000000')
  .option('--long <n>', 'events for one policy without times', '20000000')
const values = optionsOf<BenchOptions & { events: string; long: string }>(program)

async function secondsOf(events: number, options: ReplayOptions) {
  const trace = trainingRun(events)
  const start = performance.now()
  const { runs } = await replay(trace, () => openDevice(new SimulatedDriver({ progress: 'eager' })), options)
  const seconds = Number(((performance.now() - start) / 1000).toFixed(2))
  const failed = runs.find(run => run.failures > 0)
  if (failed !== undefined) throw new Error(`${failed.policy} failed ${failed.failures} allocations`)
  console.log(`${trace.events} events, ${runs.map(run => run.policy).join(', ')}: ${seconds} s`)
  return { events: trace.events, policies: runs.length, seconds }
}

const result = {
  machine: { cpu: os.cpus()[0]?.model ?? 'unknown', cores: os.cpus().length, node: process.version },
  defaults: await secondsOf(values.smoke ? 3000 : Number(values.events), { latency: true }),
  onePolicy: await secondsOf(values.smoke ? 3000 : Number(values.long), { policies: ['cuda-mempool'] }),
}
save(values.save, 'replay-report', result)
