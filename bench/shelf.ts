// Switches of a shelf of eight models with room for three, beside the plain copy of a model from pinned memory.
// Run: node dist/bench/shelf.js [--device D] [--gib N] [--smoke] [--save DIR]

import { GiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { DeviceBuffer } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('switches of a shelf of models, beside plain copies').option(
  '--gib <n>',
  'GiB of a model',
  '8',
)
const values = optionsOf<BenchOptions & { readonly gib: string }>(program)
const device = deviceOf(program)
const MODELS = 8
const ROOM = 3
const REQUESTS = values.smoke ? 20 : 60
const COPY_BYTES = values.smoke ? 1 * MiB : 64 * MiB
const bytes = values.smoke ? 4 * MiB : Number(values.gib) * GiB

/** Milliseconds of copies of a whole model from pinned memory. */
async function plainCopies(): Promise<number[]> {
  using pool = device.createPool({ maxPoolBytes: bytes })
  using host = device.createHostPool({ maxPoolBytes: bytes, segmentBytes: COPY_BYTES })
  const stream = device.createStream()
  using target = pool.allocate(bytes, stream)
  const sources = Array.from({ length: bytes / COPY_BYTES }, () => host.allocate(COPY_BYTES))
  const times: number[] = []
  for (let round = 0; round < 6; round++) {
    const start = performance.now()
    for (const [index, source] of sources.entries()) source.copyTo(target, index * COPY_BYTES)
    await stream.finished()
    times.push(performance.now() - start)
  }
  for (const source of sources) source.free()
  return times.slice(1)
}

const copies = await plainCopies()
const shelf = device.createShelf<DeviceBuffer>({ budgetBytes: ROOM * bytes })
for (let model = 0; model < MODELS; model++) {
  const load = (pool: { allocate(size: number): DeviceBuffer }) => {
    const weights = pool.allocate(bytes)
    weights.fill(model)
    return weights
  }
  shelf.add(`${model}`, { bytes, unchanged: true, load })
}

async function use(model: number): Promise<void> {
  const right = await shelf.use(`${model}`, weights => weights.readSync(bytes - 1)[0] === model)
  if (!right) throw new Error(`model ${model} has lost its contents`)
}

// Each model is loaded, and copied to the host once, before the switches count.
for (let model = 0; model < MODELS + ROOM; model++) await use(model % MODELS)
const random = new Random(1)
const switches: number[] = []
for (let count = 0; count < REQUESTS; count++) {
  const before = shelf.stats().switches
  await use(random.below(MODELS))
  const { switches: after, lastSwitchMs } = shelf.stats()
  if (after > before) switches.push(lastSwitchMs)
}

const [copyMs, switchMs] = [median(copies), median(switches)]
const machine = machineOf(device)
console.log(headline(machine, "its times are no GPU's"))
console.log(`${MODELS} models of ${bytes / GiB} GiB with room for ${ROOM}; ${switches.length} switches`)
console.table([
  { name: 'plain copy', medianMs: copyMs, longestMs: Math.max(...copies) },
  { name: 'switch', medianMs: switchMs, longestMs: Math.max(...switches) },
])
console.log(`a switch takes ${(switchMs / copyMs).toFixed(3)} times the plain copy`)
const parameters = { bytes, models: MODELS, room: ROOM, requests: REQUESTS }
save(values.save, 'shelf', { machine, parameters, copies, switches, switchTimesPlainCopy: switchMs / copyMs })
await shelf.close()
device.close()
