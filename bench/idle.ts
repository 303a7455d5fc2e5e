// The share of a core that a process uses while it does nothing and shared pools are open, beside the same process
// before it had any. Run: node dist/bench/idle.js [--pools N] [--seconds T] [--device D] [--smoke] [--save DIR]

import { setTimeout } from 'node:timers/promises'
import { machineOf, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

interface IdleOptions extends BenchOptions {
  readonly pools: string
  readonly seconds: string
}

const program = deviceBenchmark('what idle shared pools cost')
  .option('--pools <count>', 'shared pools', '8')
  .option('--seconds <time>', 'how long each of the two measurements takes', '60')
const values = optionsOf<IdleOptions>(program)
const [count, seconds] = [Number(values.pools), values.smoke ? 0.1 : Number(values.seconds)]

/** Percent of a core that the whole process uses. */
async function corePercent(): Promise<number> {
  const before = process.cpuUsage()
  const start = performance.now()
  await setTimeout(seconds * 1000)
  const { user, system } = process.cpuUsage(before)
  return ((user + system) / 1000 / (performance.now() - start)) * 100
}

const device = deviceOf(program)
const withoutPools = await corePercent()
const pools = Array.from({ length: count }, () => device.createSharedPool())
for (const pool of pools) pool.allocate(4096).free()
if (!values.smoke) await setTimeout(30_000) // pool servers look less and less often while nothing is asked
const withPools = await corePercent()

const result = { machine: machineOf(device), parameters: { pools: count, seconds }, withoutPools, withPools }
console.log(JSON.stringify(result, null, 2))
save(values.save, 'idle', result)
device.close()
