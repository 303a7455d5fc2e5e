// How fast a recording goes through the pool on the simulated device: host time only, one thread.
// Run: node dist/bench/replay.js [FILE] [--rounds N] [--smoke] [--save DIR]

import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { PoolPass } from '../src/recordings/trace/pool-pass.js'
import { machineOf, median, save } from './machine.js'
import { type BenchOptions, benchmark, optionsOf } from './options.js'

const program = benchmark('how fast a recording goes through the pool on the simulated device')
  .argument('[file]', 'a recording', 'traces/gpt2-train-varlen.pickle.gz')
  .option('--rounds <n>', 'go through it so many times', '100')
const values = optionsOf<BenchOptions & { rounds: string }>(program)
const [file] = program.processedArgs as [string]
const rounds = values.smoke ? 2 : Number(values.rounds)
const BATCHES = values.smoke ? 1 : 5
const LAG = 8

const trace = readRecording(file)
const open = () => openDevice(new SimulatedDriver({ progress: 'eager' }))
const rates = Array.from({ length: BATCHES }, () => {
  const device = open()
  const pool = device.createPool({ maxPoolBytes: Infinity })
  const { seconds, failures } = new PoolPass(trace, device, pool, LAG).run({ repeat: rounds })
  if (failures > 0) throw new Error(`${failures} events failed`)
  device.close()
  return (trace.events * rounds) / seconds
})
const device = open()
const machine = machineOf(device)
device.close()
const eventsPerSecond = Math.round(median(rates))
console.log(
  `${file}: ${trace.events} events, ${rounds} rounds, lag ${LAG}, median of ${BATCHES}, ${machine.cpu}, Node ${machine.node}`,
)
console.log(`${(eventsPerSecond / 1e6).toFixed(2)} million events a second through the pool, on the simulated device`)
save(values.save, 'replay', { machine, parameters: { file, rounds, lag: LAG, batches: BATCHES }, eventsPerSecond })
