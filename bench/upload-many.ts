// Uploads of lists of arrays: by `uploadMany` with the driver's batches of copies and without, and by `upload` of each,
// by turns. Run: node dist/bench/upload-many.js [--device D] [--smoke] [--save DIR]

import { formatBytes, KiB, MiB } from '../src/core/base/bytes.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('uploads of lists of arrays')
const values = optionsOf<BenchOptions>(program)
const device = deviceOf(program)
const ROUNDS = values.smoke ? 2 : 15
const SIZES = [1 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, 1 * MiB]
const COUNT = values.smoke ? 10 : 1000

const machine = machineOf(device)
const version = device.driver.cuDriverGetVersion.bind(device.driver)
const stream = device.createStream()
const pool = device.createPool({ maxPoolBytes: COUNT * MiB + 512 * MiB })

const WAYS = {
  'uploadMany, batches': (sources: readonly Uint8Array[]) => pool.uploadMany(sources, stream),
  'uploadMany, one by one': (sources: readonly Uint8Array[]) => {
    device.driver.cuDriverGetVersion = () => 12_000
    const arrays = pool.uploadMany(sources, stream)
    device.driver.cuDriverGetVersion = version
    return arrays
  },
  'upload of each': (sources: readonly Uint8Array[]) => sources.map(source => pool.upload(source, stream)),
}

interface Row {
  readonly array: string
  readonly way: string
  /** until the call returns */
  readonly callMs: number
  /** until the contents are on the device */
  readonly doneMs: number
}

async function measure(bytes: number): Promise<Row[]> {
  const sources = Array.from({ length: COUNT }, (_, index) => new Uint8Array(bytes).fill(index))
  const times = Object.keys(WAYS).map(() => ({ call: [] as number[], done: [] as number[] }))
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [index, upload] of Object.values(WAYS).entries()) {
      const start = performance.now()
      const arrays = upload(sources)
      const called = performance.now() - start
      await stream.finished()
      const done = performance.now() - start
      for (const array of arrays) array.free()
      if (round === 0) continue
      times[index].call.push(called)
      times[index].done.push(done)
    }
  }
  return Object.keys(WAYS).map((way, index) => ({
    array: formatBytes(bytes),
    way,
    callMs: Number(median(times[index].call).toFixed(3)),
    doneMs: Number(median(times[index].done).toFixed(3)),
  }))
}

const rows: Row[] = []
for (const bytes of SIZES) rows.push(...(await measure(bytes)))
console.log(headline(machine, "its times are no GPU's"))
console.log(`${COUNT} arrays, ${ROUNDS} rounds`)
console.table(rows)
save(values.save, 'upload-many', { machine, parameters: { count: COUNT, rounds: ROUNDS }, rows })
device.close()
