// A loop over spillable buffers that are four times what the device may hold, beside plain copies of as many bytes.
// Run: node dist/bench/spill.js [--device D] [--smoke] [--save DIR]

import { GiB, MiB } from '../src/core/base/bytes.js'
import { spillable } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('a loop over buffers that spill, beside plain copies')
const values = optionsOf(program)
const device = deviceOf(program)
const ROUNDS = values.smoke ? 2 : 8
const BUFFER_BYTES = values.smoke ? 256 * 1024 : 64 * MiB
const COUNT = 32
const SHARE = 4
const maxPoolBytes = (BUFFER_BYTES * COUNT) / SHARE

const stream = device.createStream()
using host = device.createHostPool({ maxPoolBytes: 8 * GiB, segmentBytes: BUFFER_BYTES })
using pool = device.createPool()
using buffers = spillable(pool, { host, maxPoolBytes })
const all = Array.from({ length: COUNT }, () => buffers.allocate(BUFFER_BYTES, stream))

interface Row {
  readonly name: string
  readonly gigabytesPerSecond: number
  readonly medianMs: number
  readonly longestMs: number
  readonly submitMs: number
}

/** Uses every buffer once a round, and tells the bytes that moved. */
async function loop(name: string, writes: boolean): Promise<Row> {
  const total: number[] = []
  const submit: number[] = []
  let moved = 0
  for (let round = -2; round < ROUNDS; round++) {
    const before = buffers.stats()
    const start = performance.now()
    for (const [index, buffer] of all.entries()) {
      using here = buffer.use(stream, { writes })
      if (writes) here.fill(index, 0, 4096)
    }
    const submitted = performance.now()
    await stream.finished()
    if (round < 0) continue
    const after = buffers.stats()
    moved = after.spilledBytes + after.returnedBytes - before.spilledBytes - before.returnedBytes
    submit.push(submitted - start)
    total.push(performance.now() - start)
  }
  return rowOf(name, moved, total, submit)
}

async function plain(): Promise<Row> {
  using source = host.allocate(BUFFER_BYTES)
  using target = pool.allocate(BUFFER_BYTES, stream)
  const total: number[] = []
  const submit: number[] = []
  for (let round = -2; round < ROUNDS; round++) {
    const start = performance.now()
    for (let copy = 0; copy < COUNT; copy++) source.copyTo(target)
    const submitted = performance.now()
    await stream.finished()
    if (round < 0) continue
    submit.push(submitted - start)
    total.push(performance.now() - start)
  }
  return rowOf('plain copies to the device', COUNT * BUFFER_BYTES, total, submit)
}

function rowOf(name: string, bytes: number, total: readonly number[], submit: readonly number[]): Row {
  return {
    name,
    gigabytesPerSecond: Number((bytes / 1e6 / median(total)).toFixed(2)),
    medianMs: Number(median(total).toFixed(2)),
    longestMs: Number(Math.max(...total).toFixed(2)),
    submitMs: Number(median(submit).toFixed(2)),
  }
}

const rows = [await plain(), await loop('buffers that are written', true), await loop('buffers that are read', false)]
const [copies, ...loops] = rows
const machine = machineOf(device)
console.log(headline(machine, "its times are no GPU's"))
console.log(`${COUNT} buffers of ${BUFFER_BYTES / MiB} MiB; the device has room for ${COUNT / SHARE}; ${ROUNDS} rounds`)
console.table(rows)
const shares = loops.map(({ name, gigabytesPerSecond }) => ({
  name,
  shareOfPlainCopies: Number((gigabytesPerSecond / copies.gigabytesPerSecond).toFixed(3)),
}))
for (const { name, shareOfPlainCopies } of shares)
  console.log(`${name}: ${shareOfPlainCopies} of the plain copies' rate`)
const parameters = { bufferBytes: BUFFER_BYTES, count: COUNT, maxPoolBytes, rounds: ROUNDS }
save(values.save, 'spill', { machine, parameters, rows, shares })
