// Collectives as work of simulated streams: order, graphs, groups, messages and aborts.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../core/base/random.js'
import { seedsFrom } from '../../core/base/seeds.fixture.js'
import {
  CU_EVENT_DISABLE_TIMING,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_NON_BLOCKING,
} from '../../core/driver/constants.js'
import { NCCL_OPS, NCCL_RESULT, NCCL_TYPES } from '../constants.js'
import { stateOf } from '../nccl.fixture.js'
import { allReduce, openWorld } from './world.fixture.js'

const F32 = NCCL_TYPES.float32.type
const { ncclSuccess, ncclInvalidUsage, ncclRemoteError } = NCCL_RESULT

test('a collective runs in stream order, and only once all ranks have reached it', async () => {
  const { nccl, driver, world, first, second } = await openWorld()
  const ptrs = world.ranks.map(rank => rank.place('float32', [1]))
  const ticket = driver.holdOperation(second.enter().stream)
  await world.group((rank, number) => allReduce(nccl, rank, ptrs[number]))
  assert.equal(driver.cuStreamQuery(first.enter().stream), false)
  driver.cuMemsetD32Async(ptrs[1], 0x4000_0000, 1, second.enter().stream) // 2, after the collective
  assert.equal(driver.cuStreamQuery(second.stream), false)
  driver.releaseThrough(second.stream, ticket)
  assert.equal(driver.cuStreamQuery(second.stream), true)
  assert.equal(driver.cuStreamQuery(first.enter().stream), true)
  assert.deepEqual([first.read(ptrs[0], 'float32', 1), second.read(ptrs[1], 'float32', 1)], [[2], [2]])
  await world.close()
})

test('a host wait on one rank runs the work of the others, held operations too', async () => {
  for (const progress of ['eager', 'seeded'] as const) {
    const { nccl, driver, world, first, second } = await openWorld({}, { progress })
    const ptrs = world.ranks.map(rank => rank.place('float32', [1]))
    driver.holdOperation(second.enter().stream)
    await world.group((rank, number) => allReduce(nccl, rank, ptrs[number]))
    assert.deepEqual(first.read(ptrs[0], 'float32', 1), [2])
    second.read(ptrs[1], 'float32', 1)
    await world.close()
  }
})

test('the work of one communicator runs in the order of the calls, on any streams', async () => {
  for (const seed of seedsFrom(1, 10, 1)) {
    const { nccl, driver, world } = await openWorld({}, { seed })
    const random = new Random(seed)
    const streams = world.ranks.map(rank => [
      rank.stream,
      ...[1, 2].map(() => rank.enter().driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)),
    ])
    const ptrs = world.ranks.map(rank => rank.place('float32', Array(20).fill(1)))
    for (let call = 0; call < 20; call++) {
      await world.group(({ comm }, number) => {
        const ptr = ptrs[number] + 4 * call
        nccl.ncclAllReduce(ptr, ptr, 1, F32, NCCL_OPS.sum, comm, streams[number][random.below(3)])
      })
    }
    for (const [number, rank] of world.ranks.entries()) {
      driver.cuCtxSetCurrent(rank.context)
      driver.cuCtxSynchronize()
      assert.deepEqual(rank.read(ptrs[number], 'float32', 20), Array(20).fill(2), `seed ${seed}`)
      for (const stream of streams[number].slice(1)) driver.cuStreamDestroy(stream)
    }
    await world.close()
  }
})

test('one group on several streams comes after the work of all of them, and before later work', async () => {
  for (const seed of seedsFrom(1, 10, 1)) {
    const { nccl, driver, world } = await openWorld({}, { seed })
    const others = world.ranks.map(rank => rank.enter().driver.cuStreamCreate(CU_STREAM_NON_BLOCKING))
    const ptrs = world.ranks.map(rank => rank.place('float32', [0, 0]))
    for (const [number, rank] of world.ranks.entries()) {
      driver.cuCtxSetCurrent(rank.context)
      driver.cuMemsetD32Async(ptrs[number], 0x3f80_0000, 1, rank.stream)
      driver.cuMemsetD32Async(ptrs[number] + 4, 0x3f80_0000, 1, others[number])
    }
    await world.group(({ comm, stream }, number) => {
      nccl.ncclAllReduce(ptrs[number], ptrs[number], 1, F32, NCCL_OPS.sum, comm, stream)
      nccl.ncclAllReduce(ptrs[number] + 4, ptrs[number] + 4, 1, F32, NCCL_OPS.sum, comm, others[number])
    })
    for (const [number, rank] of world.ranks.entries()) {
      driver.cuCtxSetCurrent(rank.context)
      driver.cuStreamSynchronize(others[number])
      assert.deepEqual(rank.read(ptrs[number], 'float32', 2), [2, 2], `seed ${seed}`)
      driver.cuStreamDestroy(others[number])
    }
    await world.close()
  }
})

test('a captured collective runs at each launch of the graph', async () => {
  for (const progress of ['eager', 'seeded'] as const) {
    const { nccl, driver, world } = await openWorld({}, { progress })
    const ptrs = world.ranks.map(rank => rank.place('float32', [1, 10]))
    for (const rank of world.ranks) driver.cuStreamBeginCapture(rank.enter().stream, CU_STREAM_CAPTURE_MODE_RELAXED)
    await world.group((rank, number) => {
      allReduce(nccl, rank, ptrs[number])
      allReduce(nccl, rank, ptrs[number] + 4)
    })
    const graphs = world.ranks.map(rank => driver.cuStreamEndCapture(rank.enter().stream))
    const executables = graphs.map((graph, number) => {
      driver.cuCtxSetCurrent(world.ranks[number].context)
      return [0, 1].map(() => driver.cuGraphInstantiate(graph))
    })
    for (const [number, rank] of world.ranks.entries()) assert.deepEqual(rank.read(ptrs[number], 'float32', 1), [1])
    for (let launch = 0; launch < 4; launch++) {
      for (const [number, rank] of world.ranks.entries()) {
        driver.cuCtxSetCurrent(rank.context)
        driver.cuGraphLaunch(executables[number][launch % 2], rank.stream)
      }
    }
    await world.group((rank, number) => allReduce(nccl, rank, ptrs[number], 2))
    for (const [number, rank] of world.ranks.entries()) {
      assert.deepEqual(rank.read(ptrs[number], 'float32', 2), [32, 320])
    }
    await world.close()
  }
})

test('the launch of a graph and other calls of a communicator run in the order that the program makes them', async () => {
  const { nccl, driver, world } = await openWorld({}, { progress: 'eager' })
  const ptrs = world.ranks.map(rank => rank.place('float32', [1, 10]))
  const others = world.ranks.map(rank => rank.enter().driver.cuStreamCreate(CU_STREAM_NON_BLOCKING))
  for (const rank of world.ranks) driver.cuStreamBeginCapture(rank.enter().stream, CU_STREAM_CAPTURE_MODE_RELAXED)
  await world.group((rank, number) => allReduce(nccl, rank, ptrs[number]))
  const tickets = world.ranks.map(({ stream, context }) => {
    driver.cuCtxSetCurrent(context)
    const executable = driver.cuGraphInstantiate(driver.cuStreamEndCapture(stream))
    const ticket = driver.holdOperation(stream)
    driver.cuGraphLaunch(executable, stream)
    return ticket
  })
  await world.group(({ comm }, number) => {
    nccl.ncclAllReduce(ptrs[number] + 4, ptrs[number] + 4, 1, F32, NCCL_OPS.sum, comm, others[number])
  })
  const areIdle = () => world.ranks.map((rank, number) => rank.enter().driver.cuStreamQuery(others[number]))
  assert.deepEqual(areIdle(), [false, false])
  for (const [number, { stream }] of world.ranks.entries()) driver.releaseThrough(stream, tickets[number])
  assert.deepEqual(areIdle(), [true, true])
  for (const [number, rank] of world.ranks.entries()) {
    assert.deepEqual(rank.read(ptrs[number], 'float32', 2), [2, 20])
    rank.driver.cuStreamDestroy(others[number])
  }
  await world.close()
})

test('collectives of different graphs are compared when they run', async () => {
  const { nccl, driver, world } = await openWorld()
  const ptrs = world.ranks.map(rank => rank.place('float32', [1, 2]))
  for (const rank of world.ranks) driver.cuStreamBeginCapture(rank.enter().stream, CU_STREAM_CAPTURE_MODE_RELAXED)
  await world.group((rank, number) => allReduce(nccl, rank, ptrs[number], 1 + number))
  const launch = () => {
    for (const rank of world.ranks) {
      const graph = driver.cuStreamEndCapture(rank.enter().stream)
      driver.cuGraphLaunch(driver.cuGraphInstantiate(graph), rank.stream)
    }
    driver.cuStreamSynchronize(world.ranks[0].enter().stream)
  }
  assert.throws(launch, /run different calls of NCCL: rank \d of 2 ncclAllReduce of \d float32/)
})

test('a send waits for its receive, and abort lets work pass without effect', async () => {
  const { nccl, driver, world, first, second } = await openWorld()
  const source = first.place('float32', [1])
  const target = second.place('float32', [7])
  nccl.ncclSend(source, 1, F32, 1, first.comm, first.stream)
  await world.settle()
  first.enter()
  const done = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  driver.cuEventRecord(done, first.stream)
  assert.equal(driver.cuEventQuery(done), false)
  nccl.ncclRecv(target, 1, F32, 0, second.comm, second.stream)
  await world.settle()
  assert.equal(driver.cuEventQuery(done), true)
  assert.deepEqual(second.read(target, 'float32', 1), [1])
  first.enter()
  nccl.ncclRecv(source, 1, F32, 1, first.comm, first.stream)
  await world.settle()
  driver.cuMemsetD32Async(source, 0, 1, first.stream)
  assert.equal(driver.cuStreamQuery(first.stream), false)
  assert.equal(nccl.ncclCommAbort(first.comm), ncclSuccess)
  assert.equal(driver.cuStreamQuery(first.stream), true)
  assert.deepEqual(first.read(source, 'float32', 1), [0])
  assert.equal(stateOf(nccl, second.comm), ncclRemoteError)
  assert.match(nccl.ncclGetLastError(second.comm), /rank 0 was aborted/)
  assert.equal(nccl.ncclCommDestroy(second.comm), ncclRemoteError)
  assert.equal(nccl.ncclCommAbort(second.comm), ncclSuccess)
})

test('calls fail as rules say, without an effect', async () => {
  const { nccl, world, first, second } = await openWorld()
  const ptrs = world.ranks.map(rank => rank.place('float32', [1]))
  nccl.failCall({ call: 'ncclCommGetAsyncError', result: ncclRemoteError })
  assert.equal(stateOf(nccl, first.comm), ncclRemoteError, 'the state, once')
  assert.equal(stateOf(nccl, first.comm), ncclSuccess)
  nccl.failCall({ call: 'ncclCommFinalize', result: 3, nth: 2 })
  nccl.clearFaults()
  nccl.failCall({ call: 'ncclAllReduce', result: 3, nth: 3 })
  await world.group((rank, number) => allReduce(nccl, rank, ptrs[number]))
  nccl.ncclGroupStart()
  assert.equal(allReduce(nccl, first, ptrs[0]), 3)
  assert.match(nccl.ncclGetLastError(first.comm), /ncclAllReduce: a fault rule/)
  assert.equal(allReduce(nccl, second, ptrs[1]), ncclSuccess)
  assert.equal(nccl.ncclGroupEnd(), 3, 'the group ends without effect')
  assert.equal(stateOf(nccl, second.comm), 3)
  for (const [number, rank] of world.ranks.entries()) assert.deepEqual(rank.read(ptrs[number], 'float32', 1), [2])
  nccl.failCall({ call: 'ncclGroupEnd', result: 2 })
  nccl.ncclGroupStart()
  assert.equal(nccl.ncclGroupEnd(), 2)
  assert.equal(nccl.ncclGroupEnd(), ncclInvalidUsage, 'it has ended')
  world.abort()
})
