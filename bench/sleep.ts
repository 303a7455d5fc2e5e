// Sleep and wake of a caching pool, beside the plain copy of as many bytes from the same pinned memory.
// Run: node dist/bench/sleep.js [--device D] [--gib N] [--smoke] [--save DIR]

import { GiB, MiB } from '../src/core/base/bytes.js'
import type { CachingPool, DeviceBuffer, HostPool, Stream } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('sleep and wake of a pool, beside plain copies').option(
  '--gib <n>',
  'GiB of buffers',
  '32',
)
const values = optionsOf<BenchOptions & { readonly gib: string }>(program)
const device = deviceOf(program)
const ROUNDS = values.smoke ? 2 : 5
const BUFFER_BYTES = values.smoke ? 1 * MiB : 256 * MiB
const COPY_BYTES = Math.min(BUFFER_BYTES, 64 * MiB)
const bytes = values.smoke ? 8 * MiB : Number(values.gib) * GiB
const gib = bytes / GiB

interface Row {
  readonly name: string
  readonly medianMs: number
  readonly longestMs: number
  readonly medianMsPerGiB: number
}

const times = new Map<string, number[]>()

async function time(name: string, work: () => Promise<void>): Promise<void> {
  const start = performance.now()
  await work()
  const known = times.get(name) ?? []
  known.push(performance.now() - start)
  times.set(name, known)
}

/** Copies as many bytes as the buffers have, from pinned memory. */
async function plainCopies(host: HostPool, buffers: readonly DeviceBuffer[], stream: Stream): Promise<void> {
  const sources = Array.from({ length: bytes / COPY_BYTES }, () => host.allocate(COPY_BYTES))
  for (let round = 0; round <= ROUNDS; round++) {
    const copy = async () => {
      const perBuffer = BUFFER_BYTES / COPY_BYTES
      for (const [index, source] of sources.entries()) {
        source.copyTo(buffers[Math.floor(index / perBuffer)], (index % perBuffer) * COPY_BYTES)
      }
      await stream.finished()
    }
    if (round === 0) await copy()
    else await time('plain copy', copy)
  }
  for (const source of sources) source.free()
}

async function sleepAndWake(pool: CachingPool, host: HostPool): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    await time('sleep into a host pool', () => pool.sleep({ into: host }))
    await time('wake', () => pool.wake({ keepCopy: true }))
    await time('sleep, unchanged', () => pool.sleep({ into: host, unchanged: true }))
    await time('wake', () => pool.wake())
    await time("sleep, keep 'nothing'", () => pool.sleep({ keep: 'nothing' }))
    await time("wake after 'nothing'", () => pool.wake())
  }
}

const stream = device.createStream()
const pool = device.createPool({ backing: 'virtual', maxPoolBytes: bytes + 64 * MiB })
const buffers = Array.from({ length: bytes / BUFFER_BYTES }, () => pool.allocate(BUFFER_BYTES, stream))
for (const [index, buffer] of buffers.entries()) buffer.fill(index % 256)
const host = device.createHostPool({ maxPoolBytes: bytes + 64 * MiB, segmentBytes: COPY_BYTES })
const before = performance.now()
const all = Array.from({ length: bytes / COPY_BYTES }, () => host.allocate(COPY_BYTES))
const pinMs = performance.now() - before
for (const buffer of all) buffer.free()
await plainCopies(host, buffers, stream)
for (const [index, buffer] of buffers.entries()) buffer.fill(index % 256)
await pool.sleep({ into: host })
await pool.wake()
for (const [index, buffer] of buffers.entries()) {
  const [first, last] = [buffer.readSync(0, 1)[0], buffer.readSync(BUFFER_BYTES - 1)[0]]
  if (first !== index % 256 || last !== index % 256) throw new Error(`buffer ${index} has lost its contents`)
}
await sleepAndWake(pool, host)

const rows: Row[] = [...times].map(([name, ms]) => ({
  name,
  medianMs: Number(median(ms).toFixed(2)),
  longestMs: Number(Math.max(...ms).toFixed(2)),
  medianMsPerGiB: Number((median(ms) / gib).toFixed(2)),
}))
const plain = rows.find(({ name }) => name === 'plain copy')!.medianMs
const wake = rows.find(({ name }) => name === 'wake')!.medianMs
const machine = machineOf(device)
console.log(headline(machine, "its times are no GPU's"))
console.log(
  `${gib} GiB in buffers of ${BUFFER_BYTES / MiB} MiB, ${ROUNDS} rounds; pinning it took ${pinMs.toFixed(0)} ms`,
)
console.table(rows)
console.log(`a wake takes ${(wake / plain).toFixed(3)} times the plain copy`)
const parameters = { bytes, bufferBytes: BUFFER_BYTES, copyBytes: COPY_BYTES, rounds: ROUNDS }
save(values.save, 'sleep', { machine, parameters, pinMs, rows, wakeTimesPlainCopy: wake / plain })
device.close()
