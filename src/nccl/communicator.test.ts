import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { float16 } from '../core/base/small-floats.js'
import type { Device } from '../core/device/device.js'
import type { DeviceArray } from '../core/pool/array.js'
import type { CachingPool } from '../core/pool/caching/caching-pool.js'
import { Communicator } from './communicator.js'
import type { CommunicatorError } from './communicator-error.js'
import { uniqueId } from './joins.js'
import { suspendAndResume, suspendElsewhere } from './suspending-rank.fixture.js'
import { elements, TestWorld } from './world.fixture.js'

const RANKS = 3

/** An array of a new pool on each device. */
function numbers(world: TestWorld, make: (rank: number) => Float32Array) {
  return world.arrays((device, rank) => device.createPool().upload(make(rank)))
}

describe('a communicator', () => {
  it('combines and moves memory of all ranks', async () => {
    using world = await TestWorld.join({ devices: RANKS })
    const three = () => numbers(world, rank => Float32Array.of(rank, 10 * rank, 100 * rank))
    const one = () => numbers(world, rank => Float32Array.of(rank + 1))
    const results: Record<string, () => Promise<number[][]>> = {
      allReduce: async () => {
        const [send, receive] = [three(), three()]
        world.all((comm, rank) => comm.allReduce(send[rank], receive[rank], { op: 'max' }))
        return await elements(receive)
      },
      reduce: async () => {
        const memory = three()
        world.all((comm, rank) => comm.reduce(memory[rank], memory[rank], { root: 1 }))
        return await elements(memory)
      },
      reduceScatter: async () => {
        const [send, receive] = [three(), one()]
        world.all((comm, rank) => comm.reduceScatter(send[rank], receive[rank]))
        return await elements(receive)
      },
      allGather: async () => {
        const [send, receive] = [one(), three()]
        world.all((comm, rank) => comm.allGather(send[rank], receive[rank]))
        return await elements(receive)
      },
      broadcast: async () => {
        const memory = three()
        world.all((comm, rank) => comm.broadcast(memory[rank], { root: 2 }))
        return await elements(memory)
      },
      allToAll: async () => {
        const [send, receive] = [three(), three()]
        world.all((comm, rank) => comm.allToAll(send[rank], receive[rank]))
        return await elements(receive)
      },
      'send and receive': async () => {
        const [send, receive] = [three(), three()]
        world.all((comm, rank) => {
          comm.send(send[rank], { to: (rank + 1) % RANKS })
          comm.receive(receive[rank], { from: (rank + RANKS - 1) % RANKS })
        })
        return await elements(receive)
      },
    }
    const found = Object.fromEntries(
      await Promise.all(Object.entries(results).map(async ([name, run]) => [name, await run()] as const)),
    )
    assert.deepEqual(found, {
      allReduce: [
        [2, 20, 200],
        [2, 20, 200],
        [2, 20, 200],
      ],
      reduce: [
        [0, 0, 0],
        [3, 30, 300],
        [2, 20, 200],
      ],
      reduceScatter: [[3], [30], [300]],
      allGather: [
        [1, 2, 3],
        [1, 2, 3],
        [1, 2, 3],
      ],
      broadcast: [
        [2, 20, 200],
        [2, 20, 200],
        [2, 20, 200],
      ],
      allToAll: [
        [0, 1, 2],
        [0, 10, 20],
        [0, 100, 200],
      ],
      'send and receive': [
        [2, 20, 200],
        [0, 0, 0],
        [1, 10, 100],
      ],
    })
    assert.equal(world.comms[0].stats().collectives, 8)
    await world.close()
  })

  it('takes count and type from the options, for buffers and small floats', async () => {
    using world = await TestWorld.join()
    const pools = world.arrays(device => device.createPool())
    const halves = pools.map(pool => pool.upload(float16.encode([0.5, 1, 2])))
    const buffers = pools.map(pool => pool.allocate(64))
    for (const buffer of buffers) buffer.fill(1)
    world.all((comm, rank) => {
      comm.allReduce(halves[rank], halves[rank], { type: 'float16', count: 2 })
      comm.allReduce(buffers[rank], buffers[rank], { type: 'uint8', op: 'sum' })
    })
    assert.deepEqual([...float16.decode((await halves[1].read()) as Uint16Array)], [1, 2, 2])
    assert.deepEqual(new Set(await buffers[0].read()), new Set([2]))
  })

  it('is work of its stream: memory of others waits for it, and is free behind it', async () => {
    using world = await TestWorld.join({ progress: 'eager' })
    const streams = world.arrays(device => device.createStream())
    const pools = world.arrays(device => device.createPool({ maxPoolBytes: '2MiB' }))
    const held = streams.map((stream, rank) => {
      world.devices[rank].context.activate()
      return world.driver.holdOperation(stream.handle)
    })
    const sends = pools.map(pool => pool.upload(Float32Array.of(1)))
    const addresses = sends.map(send => send.ptr)
    const receives = pools.map((pool, rank) => pool.allocateArray(Float32Array, 1, streams[rank]))
    streams.forEach((stream, rank) => {
      stream.wait(eventOn(world.devices[rank]))
    })
    world.all((comm, rank) => comm.allReduce(sends[rank], receives[rank], { stream: streams[rank] }))
    for (const send of sends) send.free()
    const next = pools.map(pool => pool.allocateArray(Float32Array, 1))
    for (const [rank, array] of next.entries()) {
      assert.notEqual(array.ptr, addresses[rank], 'the collective has not read it yet')
      array.fill(9)
    }
    streams.forEach((stream, rank) => {
      world.devices[rank].context.activate()
      world.driver.releaseThrough(stream.handle, held[rank])
    })
    assert.deepEqual(await elements(receives), [[2], [2]])
  })

  it('comes after work of a stream that is closed', async () => {
    using world = await TestWorld.join({ progress: 'eager' })
    const sends = world.arrays(device => {
      const stream = device.createStream()
      const send = device.createPool().zeros(Float32Array, 1, stream)
      device.context.activate()
      world.driver.holdOperation(stream.handle)
      send.fill(3)
      stream.close()
      return send
    })
    const receives = numbers(world, () => Float32Array.of(0))
    world.all((comm, rank) => {
      comm.allReduce(sends[rank], receives[rank], { stream: world.devices[rank].defaultStream })
    })
    for (const device of world.devices) device.synchronize()
    assert.deepEqual(await elements(receives), [[6], [6]])
  })

  it('is finalized once its work is complete, since NCCL blocks Node until then', async () => {
    using world = await TestWorld.join()
    const { nccl, devices, comms } = world
    const memory = numbers(world, () => Float32Array.of(1))
    world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
    const finalize = nccl.ncclCommFinalize.bind(nccl)
    const idle: boolean[] = []
    nccl.ncclCommFinalize = comm => {
      idle.push(devices[comms.findIndex(({ handle }) => handle === comm)].defaultStream.query())
      return finalize(comm)
    }
    await world.close()
    assert.deepEqual(idle, [true, true])
  })

  it('joins rank by rank, while Node goes on', async () => {
    using world = TestWorld.open()
    const [first, second] = world.devices
    const id = uniqueId(first)
    let turns = 0
    const joining = Communicator.join(first, { id, rank: 0, ranks: 2, timeoutMs: 5000 })
    for (; turns < 20; turns++) await setImmediate()
    world.comms = await Promise.all([joining, Communicator.join(second, { id, rank: 1, ranks: 2, timeoutMs: 5000 })])
    assert.deepEqual(
      world.comms.map(String),
      [0, 1].map(rank => `Communicator { rank ${rank} of 2, open }`),
    )
    await world.close()
    assert.deepEqual(JSON.parse(JSON.stringify(world.comms[1])), { rank: 1, ranks: 2, device: 1, state: 'closed' })
  })

  it('meets the other ranks at a barrier, or says that one has not come', async () => {
    using world = await TestWorld.join({ timeoutMs: 30 })
    await Promise.all(world.comms.map(comm => comm.barrier()))
    assert.equal(world.comms[0].stats().collectives, 0)
    await assert.rejects(world.comms[0].barrier(), { code: 'ERR_COMMUNICATOR', call: /barrier/ })
    await Promise.all(world.comms.map(comm => comm.barrier()))
  })

  it('rejects when a rank never comes, and leaves nothing behind', async () => {
    using world = TestWorld.open()
    const id = uniqueId(world.devices[0])
    const lone = { id, rank: 0, ranks: 2 }
    await assert.rejects(Communicator.join(world.devices[0], { ...lone, timeoutMs: 20 }), {
      name: 'CommunicatorError',
      code: 'ERR_COMMUNICATOR',
      call: 'Communicator.join',
      resultName: 'ncclInProgress',
      message: /have not made this call within 20 ms \(timeoutMs\); join again on all ranks, with a new id$/,
    })
    const signal = AbortSignal.timeout(20)
    await assert.rejects(Communicator.join(world.devices[0], { ...lone, id: uniqueId(world.devices[0]), signal }), {
      name: 'TimeoutError',
    })
    const own = new Error('of the program')
    const aborted = AbortSignal.abort(own)
    await assert.rejects(Communicator.joinAll(world.devices, { signal: aborted }), own)
  })

  it('says that a rank is gone, and is aborted; a smaller world goes on', async () => {
    using world = await TestWorld.join({ devices: RANKS })
    const memory = numbers(world, rank => Float32Array.of(rank))
    world.comms[2].abort()
    Communicator.group(() => {
      for (const rank of [0, 1]) world.comms[rank].allReduce(memory[rank], memory[rank])
    })
    for (const rank of [0, 1]) {
      const gone = { code: 'ERR_COMMUNICATOR', resultName: 'ncclRemoteError', last: rank === 0 ? /rank 2/ : /rank 0/ }
      await assert.rejects(world.comms[rank].finished({ timeoutMs: 50 }), gone)
      assert.throws(() => world.comms[rank].allReduce(memory[rank], memory[rank]), /has failed before; abort\(\) it/)
      await assert.rejects(world.comms[rank].close(), {
        code: 'ERR_COMMUNICATOR',
        message: /^close failed: .*abort\(\)/,
      })
      world.comms[rank].abort()
      world.comms[rank].abort()
      assert.equal(world.comms[rank].closed, true)
    }
    world.comms = await Communicator.joinAll(world.devices.slice(0, 2), { timeoutMs: 5000 })
    const whole = [0, 1].map(rank => world.devices[rank].createPool().upload(Float32Array.of(rank + 1)))
    world.all((comm, rank) => comm.allReduce(whole[rank], whole[rank]))
    assert.deepEqual(await elements(whole), [[3], [3]])
  })

  it('joins after a join that the driver has refused', async () => {
    using world = TestWorld.open()
    for (const call of ['cuCtxSetCurrent', 'cuThreadExchangeStreamCaptureMode'] as const) {
      for (const nth of [1, 2, 3, 4]) {
        world.driver.failCall({ call, nth, code: 999 })
        await Communicator.joinAll(world.devices)
          .then(comms => comms.map(comm => comm.abort()))
          .catch(() => {})
        world.driver.clearFaults()
      }
    }
    world.comms = await Communicator.joinAll(world.devices, { timeoutMs: 5000 })
    const memory = numbers(world, rank => Float32Array.of(rank + 1))
    world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
    assert.deepEqual(await elements(memory), [[3], [3]])
  })

  it('tells its counters while a call goes on', async () => {
    using world = await TestWorld.join({ version: 23000 })
    const arenas = Promise.all(world.comms.map(comm => comm.createSymmetricArena({ bytes: 4096 })))
    const tellUntilMade = async () => {
      for (const comm of world.comms) assert.equal(comm.stats().rank, comm.rank)
      await setImmediate()
    }
    let isMade = false
    void arenas.finally(() => {
      isMade = true
    })
    while (!isMade) await tellUntilMade()
    assert.equal((await arenas).length, 2)
  })

  it('ends what waits for it when it is aborted', async () => {
    const waiting: ((comm: Communicator) => Promise<unknown> | null)[] = [
      comm => comm.finished(),
      comm => comm.close(),
      comm => comm.createSymmetricArena({ bytes: 4096 }),
      comm => (comm.rank === 0 ? comm.createSymmetricArena({ bytes: 4096 }) : null),
    ]
    for (const wait of waiting) {
      using world = await TestWorld.join({ progress: 'eager' })
      const memory = numbers(world, rank => Float32Array.of(rank))
      for (const device of world.devices) device.synchronize()
      for (const { context, defaultStream } of world.devices) {
        context.activate()
        world.driver.holdOperation(defaultStream.handle)
      }
      world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
      const results = Promise.allSettled(world.comms.map(wait).filter(promise => promise !== null))
      await setImmediate()
      for (const comm of world.comms) comm.abort()
      for (const result of await results) {
        assert.match(String(result.status === 'rejected' && result.reason), /^PoolError: .*closed or aborted meanwhile/)
      }
    }
  })

  it('of one rank works alone', async () => {
    using world = await TestWorld.join({ devices: 1 })
    const [array] = numbers(world, () => Float32Array.of(4))
    world.comms[0].allReduce(array, array, { op: 'avg' })
    assert.deepEqual(await elements([array]), [[4]])
    await world.comms[0].close()
    assert.throws(() => world.comms[0].allReduce(array, array), /the communicator is closed; join again/)
  })

  it('that has failed ends before its device waits for work', async () => {
    using world = await TestWorld.join()
    const [first, second] = world.comms
    const [memory] = numbers(world, () => Float32Array.of(1))
    second.abort()
    first.allReduce(memory, memory)
    await assert.rejects(first.finished(), { code: 'ERR_COMMUNICATOR' })
    world.devices[0].close()
    assert.equal(first.closed, true)
  })

  it('ends with its device, or with its block', async () => {
    using world = await TestWorld.join()
    world.devices[0].close()
    assert.equal(world.comms[0].closed, true)
    assert.equal(world.comms[1].closed, false)
    {
      await using only = await Communicator.joinAll(world.devices.slice(1)).then(([comm]) => comm)
      assert.equal(only.closed, false)
      world.comms.push(only)
    }
    assert.equal(world.comms[2].closed, true)
  })

  it('shows the error of its block, and is aborted, where it cannot be closed', async () => {
    using world = await TestWorld.join({ timeoutMs: 20 })
    const [comm] = world.comms
    const block = async () => {
      await using leaving = comm
      throw new Error(`of the block of rank ${leaving.rank}`)
    }
    const warned = once(process, 'warning')
    await assert.rejects(block(), { message: 'of the block of rank 0' })
    const [warning] = await warned
    assert.match(warning.message, /^the Communicator was not closed .* within 20 ms .*\. It is aborted$/)
    assert.equal(String(comm), 'Communicator { rank 0 of 2, aborted }')
  })

  it('shows which calls of simulated ranks differ, although nothing can be closed then', async () => {
    const world = await TestWorld.join()
    const memory = numbers(world, () => Float32Array.of(1, 2))
    const block = async () => {
      await using _comm = world.comms[0]
      world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank], { count: 1 + rank }))
    }
    await assert.rejects(block(), /different orders: call 1 of rank 1 of 2 is ncclAllReduce of 2 .* of rank 0 .* of 1 /)
  })

  it('is captured on one device, and runs at each launch', async () => {
    using world = await TestWorld.join({ devices: 1 })
    const [comm] = world.comms
    const [device] = world.devices
    const stream = device.createStream()
    using pool = device.createPool()
    const [send, receive] = [pool.upload(Float32Array.of(2), stream), pool.zeros(Float32Array, 1, stream)]
    stream.synchronize()
    stream.beginCapture()
    comm.allReduce(send, receive, { stream })
    const graph = stream.endCapture()
    assert.deepEqual(await elements([receive]), [[0]])
    graph.launch(stream)
    assert.deepEqual(await elements([receive]), [[2]])
    await assert.rejects(pool.sleep(), /communicator/)
    graph.close()
    await pool.sleep()
    await pool.wake()
    assert.deepEqual(await elements([receive]), [[2]])
  })

  it('suspends and resumes from NCCL 2.29.7 on', async () => {
    using world = await TestWorld.join({ devices: 1, version: 22907 })
    const [comm] = world.comms
    const before = comm.stats().ncclBytes!
    await comm.suspend()
    assert.ok(comm.stats().ncclBytes! < before)
    await comm.resume()
    assert.equal(comm.stats().ncclBytes, before)
  })

  it('suspends and resumes together with a rank of another thread', async () => {
    const version = 22907
    using world = TestWorld.open({ devices: 1, version })
    const id = uniqueId(world.devices[0])
    assert.deepEqual(await Promise.all([suspendAndResume(world, id, 0), suspendElsewhere(version, id)]), [3, 3])
  })
})

describe('Communicator.group', () => {
  it('begins nothing if a call in it is refused, or its work throws', async () => {
    using world = await TestWorld.join()
    const memory = numbers(world, () => Float32Array.of(1))
    const fail = (last: () => void) => () =>
      Communicator.group(() => {
        world.comms[0].allReduce(memory[0], memory[0])
        last()
      })
    assert.throws(
      fail(() => world.comms[1].allReduce(memory[1], memory[1], { count: 2 })),
      /count must be/,
    )
    const own = new Error('of the program')
    assert.throws(
      fail(() => {
        throw own
      }),
      own,
    )
    const wrong = async () => world.comms[0].allReduce(memory[0], memory[0], { count: 2 })
    assert.throws(() => Communicator.group(wrong), { code: 'ERR_INVALID_ARG_TYPE', message: /must not be async/ })
    const inner = fail(() => {
      throw own
    })
    Communicator.group(() => assert.throws(inner, own))
    assert.equal(world.comms[0].stats().collectives, 0)
    world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
    assert.deepEqual(await elements(memory), [[2], [2]])
  })

  it('may lie in another group, and is refused around calls that wait', async () => {
    using world = await TestWorld.join()
    const memory = numbers(world, () => Float32Array.of(1))
    world.all((comm, rank) => Communicator.group(() => comm.allReduce(memory[rank], memory[rank])))
    assert.deepEqual(await elements(memory), [[2], [2]])
    const waiting: Promise<unknown>[] = []
    Communicator.group(() => {
      waiting.push(world.comms[0].close(), world.comms[0].createSymmetricArena({ bytes: 4096 }))
      waiting.push(Communicator.joinAll(world.devices))
    })
    for (const call of waiting) await assert.rejects(call, { name: 'PoolError', message: /a group has calls/ })
  })

  it('begins nothing if what a call needs has ended within the group', async () => {
    const ends: [string, (world: TestWorld, memory: DeviceArray) => unknown][] = [
      ['ERR_BUFFER_FREED', (_, memory) => memory.free()],
      ['ERR_POOL_CLOSED', (_, memory) => (memory.pool as CachingPool).close()],
      ['ERR_POOL_CLOSED', ({ comms }) => comms[0].abort()],
      ['ERR_POOL_CLOSED', ({ devices }) => devices[0].close()],
      ['ERR_STREAM_CLOSED', (_, memory) => memory.stream.close()],
      ['ERR_STREAM_CAPTURED', (_, memory) => memory.stream.beginCapture()],
    ]
    for (const [code, end] of ends) {
      using world = await TestWorld.join()
      const pools = world.arrays(device => device.createPool({ warnOnHeld: false }))
      const memory = pools.map((pool, rank) => pool.upload(Float32Array.of(1), world.devices[rank].createStream()))
      for (const device of world.devices) device.synchronize()
      const call = () =>
        world.all((comm, rank) => {
          comm.allReduce(memory[rank], memory[rank])
          if (rank === 0) end(world, memory[rank])
        })
      assert.throws(call, { code }, String(end))
      assert.equal(world.nccl.calls.get('ncclAllReduce'), undefined)
    }
  })

  it('refuses devices of two drivers', async () => {
    using one = await TestWorld.join({ devices: 1 })
    using other = await TestWorld.join({ devices: 1 })
    const worlds = [one, other]
    const memory = worlds.map(({ devices }) => devices[0].createPool().zeros(Float32Array, 1))
    const call = () =>
      Communicator.group(() => {
        for (const [i, { comms }] of worlds.entries()) comms[0].allReduce(memory[i], memory[i])
      })
    assert.throws(call, { name: 'PoolError', message: /two drivers/ })
    const devices = worlds.flatMap(world => world.devices)
    await assert.rejects(Communicator.joinAll(devices), { code: 'ERR_OTHER_DEVICE', message: /two drivers/ })
  })

  it('refuses captured streams of several devices', async () => {
    using world = await TestWorld.join()
    const streams = world.arrays(device => device.createStream())
    const memory = world.arrays((device, rank) => device.createPool().zeros(Float32Array, 1, streams[rank]))
    for (const stream of streams) stream.synchronize()
    for (const stream of streams) stream.beginCapture()
    const call = () => world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank], { stream: streams[rank] }))
    assert.throws(call, { code: 'ERR_STREAM_CAPTURED', message: /streams of several devices are captured/ })
    for (const stream of streams) stream.abortCapture()
  })

  it('reports a refusal of NCCL for the call that it refused', async () => {
    using world = await TestWorld.join()
    const memory = numbers(world, () => Float32Array.of(1))
    world.nccl.failCall({ call: 'ncclAllReduce', nth: 2, result: 3 })
    const call = () => world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
    assert.throws(
      call,
      (error: CommunicatorError) => error.call === 'allReduce' && error.resultName === 'ncclInternalError',
    )
  })
})

/** An event on the default stream, for streams that use memory of it. */
function eventOn(device: Device) {
  const event = device.createEvent()
  event.record(device.defaultStream)
  return event
}
