// A rank in a thread of its own that suspends and resumes, as the other rank does in the test.

import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { Communicator } from './communicator.js'
import { TestWorld } from './world.fixture.js'

/** The steps of both ranks. */
export async function suspendAndResume(world: TestWorld, id: Uint8Array, rank: number): Promise<number> {
  const [device] = world.devices
  const comm = await Communicator.join(device, { id, rank, ranks: 2 })
  world.comms.push(comm)
  const memory = device.createPool().upload(Float32Array.of(rank + 1))
  await comm.suspend()
  await comm.resume()
  comm.allReduce(memory, memory)
  await comm.finished()
  const [sum] = await memory.read()
  await comm.close()
  return sum
}

/** Rank 1 in another thread; resolves with its sum. */
export async function suspendElsewhere(version: number, id: Uint8Array): Promise<number> {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { version, id } })
  const [sum] = await once(worker, 'message')
  return sum as number
}

if (!isMainThread && workerData?.version !== undefined) {
  using world = TestWorld.open({ devices: 1, version: workerData.version })
  parentPort!.postMessage(await suspendAndResume(world, workerData.id, 1))
}
