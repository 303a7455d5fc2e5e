// Every call of NCCL fails in turn, and every call of the driver. A failure is one typed error. Contents of other
// memory stay, nothing stays registered, and after an abort the devices have all of their memory back.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../core/base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../core/base/errors.js'
import { Communicator } from './communicator.js'
import { CommunicatorError } from './communicator-error.js'
import type { NcclCall } from './nccl.js'
import { elements, TestWorld } from './world.fixture.js'

const VERSION = 23000

/** Uses everything that communicators offer. Stops at the first failure. */
async function use(world: TestWorld): Promise<void> {
  const pools = world.arrays(device => device.createPool({ backing: 'registrable' }))
  for (const [rank, comm] of world.comms.entries()) comm.register(pools[rank])
  const memory = pools.map(pool => pool.upload(Float32Array.of(1, 2)))
  const wide = pools.map(pool => pool.zeros(Float32Array, 2 * MiB))
  world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
  world.all((comm, rank) => comm.allGather(memory[rank].subarray(rank, rank + 1), memory[rank]))
  world.all((comm, rank) => {
    comm.send(memory[rank].subarray(0, 1), { to: 1 - rank })
    comm.receive(memory[rank].subarray(1, 2), { from: 1 - rank })
  })
  const arenas = await Promise.all(world.comms.map(comm => comm.createSymmetricArena({ bytes: 64 * KiB })))
  const small = arenas.map(arena => arena.upload(Float32Array.of(1)))
  world.all((comm, rank) => comm.allReduce(small[rank], small[rank]))
  await Promise.all(world.comms.map(comm => comm.finished()))
  assert.deepEqual(await elements(small), [[2], [2]])
  for (const comm of world.comms) comm.stats()
  for (const array of wide) array.free()
  for (const device of world.devices) device.synchronize()
  for (const pool of pools) pool.trimTo(0)
  for (const arena of arenas) arena.close()
  await world.close()
  for (const pool of pools) pool.close()
}

/** Whether an error is one that programs are promised. */
function isTyped(error: unknown): boolean {
  return [CommunicatorError, CudaError, OutOfMemoryError, PoolError].some(kind => error instanceof kind)
}

/** Runs the program with a fault; afterwards other memory is whole, and all goes back. */
async function fails(fault: (world: TestWorld) => void): Promise<boolean> {
  using world = await TestWorld.join({ version: VERSION, timeoutMs: 2000 })
  const others = world.arrays((device, rank) => device.createPool().upload(Float32Array.of(rank + 7)))
  fault(world)
  let failed = false
  try {
    await use(world)
  } catch (error) {
    if (!isTyped(error)) throw error
    failed = true
  }
  world.nccl.clearFaults()
  world.driver.clearFaults()
  for (const comm of world.comms) comm.abort()
  assert.equal(world.nccl.registered, 0)
  assert.deepEqual(await elements(others), [[7], [8]])
  return failed
}

describe('failures of communicators', () => {
  it('each call of NCCL, in turn', async () => {
    const counts = await (async () => {
      using world = await TestWorld.join({ version: VERSION })
      const before = new Map(world.nccl.calls)
      await use(world)
      return [...world.nccl.calls].map(([call, count]) => [call, count - (before.get(call) ?? 0)] as const)
    })()
    const texts: NcclCall[] = ['ncclGetErrorString', 'ncclGetLastError']
    for (const [call, count] of counts) {
      if (texts.includes(call)) continue
      for (let nth = 1; nth <= count; nth++) {
        const failed = await fails(world => world.nccl.failCall({ call, nth, result: nth % 2 === 0 ? 3 : 6 }))
        assert.ok(failed || call === 'ncclCommGetAsyncError', `${call}, the ${nth}. of ${count}`)
      }
    }
  })

  it('each call of the driver, in turn', async () => {
    const calls = await (async () => {
      using world = await TestWorld.join({ version: VERSION })
      const count = () => [...world.driver.calls.values()].reduce((sum, each) => sum + each, 0)
      const before = count()
      await use(world)
      return count() - before
    })()
    let failed = 0
    for (let nth = 1; nth <= calls; nth++) {
      if (await fails(world => world.driver.failCall({ call: '*', nth, code: nth % 2 === 0 ? 1 : 2 }))) failed++
    }
    assert.ok(failed > calls / 2, `${failed} of ${calls} programs had a failure`)
  })
})

describe('a failure within a group of NCCL', () => {
  it('leaves no group open, which would take in later calls', async () => {
    for (let nth = 1, isReached = true; isReached; nth++) {
      using world = TestWorld.open({ version: VERSION })
      const all = (work: (comm: Communicator) => Promise<unknown>) => Promise.allSettled(world.comms.map(work))
      world.driver.failCall({ call: 'cuThreadExchangeStreamCaptureMode', nth, code: 2 })
      const before = world.driver.calls.get('cuThreadExchangeStreamCaptureMode') ?? 0
      const join = async () => {
        world.comms = await Communicator.joinAll(world.devices, { timeoutMs: 50 })
      }
      await Promise.allSettled([join()])
      await all(comm => comm.createSymmetricArena({ bytes: KiB }))
      isReached = (world.driver.calls.get('cuThreadExchangeStreamCaptureMode') ?? 0) - before >= nth
      world.driver.clearFaults()
      for (const comm of world.comms) comm.abort()
      await join()
      const memory = world.arrays(device => device.createPool({ warnOnHeld: false }).upload(Float32Array.of(1)))
      world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
      assert.deepEqual(await elements(memory), [[2], [2]], `the ${nth}. call`)
    }
  })
})

describe('the end of a communicator', () => {
  const calls: Record<string, (world: TestWorld) => Promise<unknown>> = {
    finished: ({ comms }) => comms[0].finished(),
    close: ({ comms }) => comms[0].close(),
    createSymmetricArena: ({ comms }) => comms[0].createSymmetricArena({ bytes: KiB }),
  }
  const ends: Record<string, (world: TestWorld) => void> = {
    abort: ({ comms }) => comms[0].abort(),
    'the close of the device': ({ devices }) => devices[0].close(),
  }
  for (const [name, call] of Object.entries(calls)) {
    for (const [end, run] of Object.entries(ends)) {
      it(`by ${end} ends ${name}, and NCCL's handle is not used any more`, async () => {
        using world = await TestWorld.join()
        const memory = world.arrays(device => device.createPool().zeros(Float32Array, 1))
        world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
        const waiting = assert.rejects(call(world), { code: 'ERR_POOL_CLOSED', message: /closed or aborted meanwhile/ })
        run(world)
        await waiting
      })
    }
  }

  it('by close leaves a wait for finished work as it is', async () => {
    using world = await TestWorld.join()
    const memory = world.arrays(device => device.createPool().zeros(Float32Array, 1))
    world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
    await Promise.all([...world.comms.map(comm => comm.finished()), world.close()])
  })

  it('closes graphs of its collectives before it ends, since NCCL would wait for them', async () => {
    for (const end of ['close', 'abort'] as const) {
      using world = await TestWorld.join({ devices: 1 })
      const [comm] = world.comms
      const [device] = world.devices
      const stream = device.createStream()
      const memory = device.createPool({ warnOnHeld: false }).zeros(Float32Array, 1, stream)
      const capture = (work: () => void) => {
        stream.synchronize()
        stream.beginCapture()
        work()
        return stream.endCapture()
      }
      const other = capture(() => memory.fill(1))
      const graph = capture(() => comm.allReduce(memory, memory))
      stream.beginCapture()
      comm.allReduce(memory, memory)
      await assert.rejects(comm.close(), { code: 'ERR_STREAM_CAPTURED', message: /end the capture first/ })
      if (end === 'close') stream.abortCapture()
      await comm[end]()
      assert.deepEqual([String(graph), String(other)], ['Graph { closed }', 'Graph { open }'])
      assert.throws(() => graph.launch(stream), { message: /the graph is closed/ })
      other.launch(stream)
      assert.deepEqual(await elements([memory]), [[1]])
    }
  })

  it('is refused while another library has a graph of its collectives, but not to the device', async () => {
    using world = await TestWorld.join({ devices: 1 })
    const [comm] = world.comms
    const [device] = world.devices
    const stream = device.createStream()
    const registrable = device.createPool({ backing: 'registrable' })
    comm.register(registrable)
    registrable.allocate(KiB).free()
    const pool = device.createPool({ warnOnHeld: false })
    const memory = pool.zeros(Float32Array, 1, stream)
    stream.synchronize()
    pool.beginCapture(stream)
    device.context.activate()
    world.driver.cuStreamBeginCapture(stream.handle, 2)
    comm.allReduce(memory, memory)
    world.driver.cuStreamEndCapture(stream.handle)
    const graphMemory = pool.endCapture(stream)
    const inUse = { code: 'ERR_POOL_IN_USE', message: /close their GraphMemory, first/ }
    await assert.rejects(comm.close(), inUse)
    assert.throws(() => comm.abort(), inUse)
    assert.deepEqual([comm.closed, comm.stats().registeredSegments], [false, 1])
    device.close()
    assert.equal(comm.closed, true)
    graphMemory.close()
  })
})
