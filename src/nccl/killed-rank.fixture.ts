// Ranks in processes of their own that combine memory until the last one is killed. The others abort, find their memory
// whole, and go on as a smaller world. Ranks that share a GPU tell NCCL that they are on different hosts, and so use
// sockets: NCCL refuses two ranks on a GPU otherwise.

import { type ChildProcess, fork } from 'node:child_process'
import { on, once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import type { DeviceArray } from '../core/pool/array.js'
import { Communicator } from './communicator.js'
import { CommunicatorError } from './communicator-error.js'
import { uniqueId } from './joins.js'

const SCRIPT = fileURLToPath(import.meta.url)
const TIMEOUT_MS = 20_000

/** The place of a process in a world of ranks; rank 0 makes the id. */
interface Place {
  readonly rank: number
  readonly ranks: number
  readonly id?: Uint8Array
  readonly isKilled: boolean
}

/** The answer of a rank: whether its sums and its other memory are right, and the error of its last collective. */
export interface Found {
  readonly sums: boolean
  readonly kept: boolean
  readonly error: string | null
}

async function holds(array: DeviceArray<Float32Array>, value: number): Promise<boolean> {
  const found = await array.read()
  return found[0] === value && found[found.length - 1] === value
}

/** Takes part in one world after another. */
async function beRank(choice: 'simulated' | number): Promise<void> {
  using device = openDevice(choice)
  using pool = device.createPool({ backing: 'registrable' })
  using kept = pool.upload(new Float32Array(1000).fill(7))
  using numbers = pool.allocateArray(Float32Array, MiB)
  for await (const [place] of on(process, 'message', { close: ['disconnect'] }) as AsyncIterable<[Place]>) {
    const { rank, ranks, isKilled } = place
    const id = place.id ?? uniqueId(device)
    if (rank === 0) process.send!(id)
    await using comm = await Communicator.join(device, { id, rank, ranks, timeoutMs: TIMEOUT_MS })
    comm.register(pool)
    numbers.fill(rank + 1)
    comm.allReduce(numbers, numbers)
    await comm.finished()
    const sums = await holds(numbers, (ranks * (ranks + 1)) / 2)
    pool.zeros(Float32Array, 16 * MiB).free() // a segment that comes while the pool is registered
    const error = await lastCollective(comm, numbers, isKilled)
    process.send!({ sums, kept: await holds(kept, 7), error })
  }
}

/** Another collective, before which a rank is killed; the error of NCCL. A rank may still be at the barrier then. */
async function lastCollective(comm: Communicator, numbers: DeviceArray, isKilled: boolean): Promise<string | null> {
  try {
    await comm.barrier()
    if (isKilled) process.kill(process.pid, 'SIGKILL')
    comm.allReduce(numbers, numbers)
    await comm.finished()
    return null
  } catch (error) {
    if (!(error instanceof CommunicatorError)) throw error
    comm.abort()
    return error.code
  }
}

/** Runs a world of processes, each at its place. The answers of those that live. */
async function runWorld(workers: readonly ChildProcess[], kill: boolean): Promise<Found[]> {
  const ranks = workers.length
  workers[0].send({ rank: 0, ranks, isKilled: false })
  const [id] = await once(workers[0], 'message')
  const living = kill ? workers.slice(0, -1) : workers
  const answers = living.map(async worker => (await once(worker, 'message'))[0] as Found)
  for (const [rank, worker] of workers.entries()) {
    if (rank > 0) worker.send({ rank, ranks, id, isKilled: kill && rank === ranks - 1 })
  }
  return await Promise.all(answers)
}

/**
 * The answers of the ranks beside a killed one, and then of the smaller world. The ranks take so many GPUs in turns,
 * and with 0 simulated devices.
 */
export async function withKilledRank(count: number, gpus: number): Promise<[beside: Found[], left: Found[]]> {
  const workers = Array.from({ length: count }, (_, rank) => {
    const place = gpus === 0 ? 'simulated' : `${rank % gpus}`
    const host = gpus < count && gpus > 0 ? { NCCL_HOSTID: `host${rank}` } : {}
    return fork(SCRIPT, [place], { serialization: 'advanced', env: { ...process.env, ...host } })
  })
  const ended = Promise.race(workers.slice(0, -1).map(worker => once(worker, 'exit')))
  const early = ended.then(([code, signal]) => Promise.reject(new Error(`a rank ended early: ${code ?? signal}`)))
  const runs = (async (): Promise<[Found[], Found[]]> => [
    await runWorld(workers, true),
    await runWorld(workers.slice(0, -1), false),
  ])()
  try {
    return await Promise.race([runs, early])
  } finally {
    early.catch(() => {})
    for (const worker of workers) worker.kill('SIGKILL')
  }
}

if (process.argv[1] === SCRIPT) {
  const [, , place] = process.argv
  await beRank(place === 'simulated' ? place : Number(place))
}
