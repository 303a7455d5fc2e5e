// Bad input: each has one typed error that names the argument, and NCCL never hears of it.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { openDevice } from '../core/device/open.js'
import { Communicator } from './communicator.js'
import type { CollectiveMemory } from './communicator-options.js'
import { uniqueId } from './joins.js'
import { errorOf, TestWorld } from './world.fixture.js'

const COLLECTIVES = [
  'ncclAllReduce',
  'ncclReduce',
  'ncclReduceScatter',
  'ncclAllGather',
  'ncclBroadcast',
  'ncclAlltoAll',
  'ncclSend',
  'ncclRecv',
] as const

/** A world of one rank with memory, which any collective could use. */
async function alone(version?: number) {
  const world = await TestWorld.join({ devices: 2, ...(version !== undefined && { version }) })
  const [comm] = world.comms
  const [device, other] = world.devices
  const pool = device.createPool()
  const array = (...values: number[]) => pool.upload(Float32Array.from(values))
  const heard = () => COLLECTIVES.map(call => world.nccl.calls.get(call) ?? 0).join()
  return { world, comm, device, other, pool, array, heard }
}

/** A value that the types do not allow. */
const wrong = (value: unknown) => value as never

describe('a communicator refuses', () => {
  it('memory that cannot take part', async () => {
    const { world, comm, device, other, pool, array, heard } = await alone()
    using _world = world
    const before = heard()
    const four = array(1, 2, 3, 4)
    const foreign = other.createPool().zeros(Float32Array, 4)
    const freed = array(1)
    freed.free()
    const open = other.createPool({ backing: 'registrable' }).zeros(Float32Array, 4)
    const buffer = pool.allocate(16)
    const stream = device.createStream()
    const late = pool.zeros(Float32Array, 4, stream)
    const cases: [string, () => unknown, string, RegExp][] = [
      [
        'no memory',
        () => comm.allReduce(wrong(new Float32Array(4)), four),
        'ERR_INVALID_ARG_TYPE',
        /send must be a DeviceBuffer/,
      ],
      ['no memory to receive', () => comm.allReduce(four, wrong(null)), 'ERR_INVALID_ARG_TYPE', /receive must be/],
      ['freed memory', () => comm.allReduce(freed, freed), 'ERR_BUFFER_FREED', /allReduce/],
      [
        'memory of another device',
        () => comm.allReduce(foreign, four),
        'ERR_OTHER_DEVICE',
        /allReduce: send belongs to another device/,
      ],
      [
        'open memory of another device, whose streams this one does not follow',
        () => comm.allReduce(open, open),
        'ERR_STREAM_ORDER',
        /the buffers are of the default stream of device 1, and their order is not known/,
      ],
      ['memory whose stream may be behind', () => comm.allReduce(four, late), 'ERR_STREAM_ORDER', /order is not known/],
      [
        'the same with a stream',
        () => comm.allReduce(late, late, { stream: device.defaultStream }),
        'ERR_STREAM_ORDER',
        /let it wait first/,
      ],
      [
        'other sizes',
        () => comm.allReduce(four, array(1, 2)),
        'ERR_OUT_OF_RANGE',
        /send has 4 elements, receive has 2 elements/,
      ],
      [
        'too small for all ranks',
        () => comm.allGather(four, array(1, 2, 3, 4)),
        'ERR_OUT_OF_RANGE',
        /receive has 4 elements for 2 ranks/,
      ],
      [
        'a count beyond the memory',
        () => comm.allReduce(four, four, { count: 5 }),
        'ERR_OUT_OF_RANGE',
        /count must be a whole number from 1 to 4/,
      ],
      ['half an element', () => comm.allReduce(four, four, { count: 1.5 }), 'ERR_OUT_OF_RANGE', /count must be/],
      [
        'no type for a buffer',
        () => comm.allReduce(buffer, buffer),
        'ERR_INVALID_ARG_TYPE',
        /a buffer does not tell its type/,
      ],
      [
        'no type for halves',
        () => comm.send(pool.zeros(Uint16Array, 4), { to: 1 }),
        'ERR_INVALID_ARG_TYPE',
        /may hold small floats/,
      ],
      [
        'two types',
        () => comm.allReduce(four, pool.zeros(Int32Array, 4)),
        'ERR_INVALID_ARG_TYPE',
        /Float32Array and Int32Array/,
      ],
      [
        'an unknown type',
        () => comm.allReduce(four, four, { type: wrong('fp8') }),
        'ERR_OUT_OF_RANGE',
        /type must be one of int8/,
      ],
      [
        'an unknown reduction',
        () => comm.allReduce(four, four, { op: wrong('and') }),
        'ERR_OUT_OF_RANGE',
        /op must be one of sum, prod/,
      ],
      [
        'an overlap',
        () => comm.allReduce(four.subarray(0, 2), four.subarray(1, 3)),
        'ERR_OUT_OF_RANGE',
        /send overlaps receive/,
      ],
      [
        'part of an element',
        () => comm.send(pool.zeros(Uint8Array, 9).subarray(1, 9), { to: 1, type: 'float32' }),
        'ERR_OUT_OF_RANGE',
        /send begins 1 bytes behind a multiple of 4/,
      ],
      ['an overlap of parts', () => comm.allToAll(four, four), 'ERR_OUT_OF_RANGE', /receive into other memory/],
      [
        'a root that is no rank',
        () => comm.broadcast(four, { root: 2 }),
        'ERR_OUT_OF_RANGE',
        /root must be a whole number from 0 to 1/,
      ],
      ['no receiver', () => comm.send(four, wrong({})), 'ERR_OUT_OF_RANGE', /to must be a whole number/],
      ['a sender of text', () => comm.receive(four, { from: wrong('1') }), 'ERR_OUT_OF_RANGE', /from must be/],
      [
        'an unknown option',
        () => comm.allReduce(four, four, wrong({ opp: 'sum' })),
        'ERR_INVALID_ARG_TYPE',
        /unknown option 'opp'/,
      ],
      ['no stream', () => comm.allReduce(four, four, { stream: wrong(7) }), 'ERR_INVALID_ARG_TYPE', /stream/],
      [
        'a stream of another device',
        () => comm.allReduce(four, four, { stream: other.defaultStream }),
        'ERR_OTHER_DEVICE',
        /stream/,
      ],
    ]
    for (const [name, call, code, message] of cases) {
      const error = errorOf(call)
      assert.deepEqual(
        [(error as { code?: string }).code, message.test(error.message)],
        [code, true],
        `${name}: ${error}`,
      )
    }
    assert.equal(heard(), before, 'NCCL heard of none')
  })

  it('memory in place is allowed where NCCL defines it', async () => {
    using world = await TestWorld.join()
    const memory = world.arrays((device, rank) => device.createPool().upload(Float32Array.of(rank, rank + 1)))
    const own = (rank: number): CollectiveMemory => memory[rank].subarray(rank, rank + 1)
    world.all((comm, rank) => comm.allGather(own(rank), memory[rank]))
    assert.deepEqual([...(await memory[0].read())], [0, 2])
    world.all((comm, rank) => comm.reduceScatter(memory[rank], own(rank)))
    assert.deepEqual([...(await memory[1].read())], [0, 4])
    const other = (rank: number) => memory[rank].subarray(1 - rank, 2 - rank)
    assert.throws(() => world.comms[0].allGather(other(0), memory[0]), /send overlaps receive/)
  })

  it('a place in the world that cannot be', async () => {
    const world = TestWorld.open()
    using _world = world
    const [device] = world.devices
    const id = uniqueId(device)
    const join = (options: object) => Communicator.join(device, { id, rank: 0, ranks: 2, timeoutMs: 20, ...options })
    const cases: [() => Promise<unknown>, string, RegExp][] = [
      [
        () => join({ id: 'abc' }),
        'ERR_INVALID_ARG_TYPE',
        /id must be the Uint8Array .*; fork passes it with serialization: 'advanced'$/,
      ],
      [() => join({ id: new Uint8Array(64) }), 'ERR_OUT_OF_RANGE', /id must have 128 bytes, not 64/],
      [() => join({ id: new Uint8Array(128) }), 'ERR_COMMUNICATOR', /Communicator.join failed: ncclInvalidArgument/],
      [() => join({ ranks: 0 }), 'ERR_OUT_OF_RANGE', /ranks must be/],
      [() => join({ rank: 2 }), 'ERR_OUT_OF_RANGE', /rank must be a whole number from 0 to 1/],
      [() => join({ rank: -1 }), 'ERR_OUT_OF_RANGE', /rank must be/],
      [() => join({ timeoutMs: 0 }), 'ERR_OUT_OF_RANGE', /timeoutMs must be/],
      [() => join({ timeoutMs: 2 ** 31 }), 'ERR_OUT_OF_RANGE', /timeoutMs must be/],
      [() => join({ signal: {} }), 'ERR_INVALID_ARG_TYPE', /signal must be an AbortSignal/],
      [() => join({ world: 1 }), 'ERR_INVALID_ARG_TYPE', /unknown option 'world'/],
      [
        () => Communicator.join(wrong({}), { id, rank: 0, ranks: 1 }),
        'ERR_INVALID_ARG_TYPE',
        /device must be a Device/,
      ],
      [() => Communicator.joinAll([]), 'ERR_OUT_OF_RANGE', /at least one device/],
      [() => Communicator.joinAll(wrong(device)), 'ERR_INVALID_ARG_TYPE', /devices must be an array/],
      [() => Communicator.joinAll([device, device]), 'ERR_OUT_OF_RANGE', /devices 0 and 1 of the list are the same/],
    ]
    for (const [call, code, message] of cases) await assert.rejects(call, { code, message }, String(call))
    assert.throws(() => uniqueId(wrong(0)), { code: 'ERR_INVALID_ARG_TYPE', message: /uniqueId: device must be/ })
  })

  it('to wait otherwise than by options', async () => {
    using world = await TestWorld.join({ timeoutMs: 40 })
    const [comm] = world.comms
    for (const options of [null, 5, [], true, () => {}]) {
      await assert.rejects(comm.finished(wrong(options)), { code: 'ERR_INVALID_ARG_TYPE', message: /options must be/ })
    }
    const [memory] = world.arrays(device => device.createPool().zeros(Float32Array, 1))
    comm.allReduce(memory, memory)
    const undecided = { timeoutMs: undefined } as never
    await assert.rejects(comm.finished(undecided), /within 40 ms/, 'that of the communicator')
  })

  it('a place that changes while it is read, and a device that closes meanwhile', async () => {
    using world = TestWorld.open({ devices: 1 })
    const [device] = world.devices
    const place = { id: uniqueId(device), rank: 0, ranks: 1 }
    for (const [name, value] of Object.entries(place)) {
      let reads = 0
      const options = { ...place, id: uniqueId(device) }
      const changing = () => (reads++ === 0 ? (name === 'id' ? options.id : value) : null)
      const own = { ...options }
      Object.defineProperty(own, name, { enumerable: true, get: changing })
      world.comms.push(await Communicator.join(device, own))
    }
    const joining = Communicator.join(device, { ...place, id: uniqueId(device), ranks: 2, timeoutMs: 20 })
    const arriving = Communicator.join(device, place)
    device.close()
    const refusals = [
      assert.rejects(arriving, { code: 'ERR_DEVICE_CLOSED' }),
      assert.rejects(joining, { code: 'ERR_COMMUNICATOR' }),
    ]
    await Promise.all(refusals)
  })

  it('a second rank with the same number, here and elsewhere', async () => {
    using world = TestWorld.open({ devices: 3 })
    const id = uniqueId(world.devices[0])
    const joins = [0, 1].map(rank => Communicator.join(world.devices[rank], { id, rank, ranks: 2, timeoutMs: 5000 }))
    world.comms = await Promise.all(joins)
    await assert.rejects(
      Communicator.join(world.devices[2], { id, rank: 1, ranks: 2 }),
      /rank 1 of this id is in this thread/,
    )
    const twice = uniqueId(world.devices[0])
    const both = [0, 1].map(rank =>
      Communicator.join(world.devices[rank], { id: twice, rank: 0, ranks: 2, timeoutMs: 100 }),
    )
    for (const result of await Promise.allSettled(both)) {
      assert.equal(result.status === 'rejected' && result.reason.code, 'ERR_COMMUNICATOR')
    }
  })

  it('pools that NCCL cannot register', async () => {
    const { world, comm, device, other, pool } = await alone()
    using _world = world
    const registrable = device.createPool({ backing: 'registrable' })
    const closed = device.createPool({ backing: 'registrable' })
    closed.close()
    const shared = device.createSharedPool({ backing: 'registrable' })
    const cases: [() => unknown, string, RegExp][] = [
      [() => comm.register(wrong(null)), 'ERR_INVALID_ARG_TYPE', /pool must be of createPool/],
      [() => comm.register(wrong(shared)), 'ERR_INVALID_ARG_TYPE', /a shared pool is mapped by another thread/],
      [() => comm.register(pool), 'ERR_NOT_SUPPORTED', /backing: 'registrable'/],
      [() => comm.register(closed), 'ERR_POOL_CLOSED', /the pool is closed/],
      [
        () => comm.register(other.createPool({ backing: 'registrable' })),
        'ERR_OTHER_DEVICE',
        /the pool is of device 1/,
      ],
      [() => [1, 2].map(() => comm.register(registrable)), 'ERR_POOL', /registered here already/],
    ]
    for (const [call, code, message] of cases) {
      const error = errorOf(call)
      assert.deepEqual([(error as { code?: string }).code, message.test(error.message)], [code, true], String(error))
    }
    await assert.rejects(registrable.sleep(), { name: 'PoolError' })
    shared.close()
  })

  it('functions that the version of NCCL lacks', async () => {
    const { world, comm, array } = await alone(21900)
    using _world = world
    const lacks = { code: 'ERR_NOT_SUPPORTED', message: /NCCL 2\.\d+\.\d+ or later is needed, and this is 2.19.0/ }
    assert.throws(() => comm.allToAll(array(1, 2), array(1, 2)), lacks)
    await assert.rejects(comm.createSymmetricArena({ bytes: 4096 }), lacks)
    await assert.rejects(comm.suspend(), lacks)
    await assert.rejects(comm.resume(), lacks)
  })

  it('calls that this thread cannot make alone', async () => {
    using world = await TestWorld.join({ version: 22907 })
    await assert.rejects(world.comms[0].suspend(), {
      code: 'ERR_NOT_SUPPORTED',
      message: /this thread has several ranks/,
    })
  })

  it('a device of another thread, and one of a closed device', async () => {
    using device = openDevice('simulated')
    device.close()
    assert.throws(() => uniqueId(device), { code: 'ERR_DEVICE_CLOSED' })
  })
})
