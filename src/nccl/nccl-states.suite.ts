// The life of communicators, and refused calls: chapters of nccl.suite.ts.

import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { LEAST_VERSION, NCCL_OPS, NCCL_RESULT, NCCL_SINCE, NCCL_TYPES, WINDOW_SYMMETRIC } from './constants.js'
import { type NcclMachine, newId, type RankOfTest, settled, stateOf, WorldOfTest } from './nccl.fixture.js'
import { Cell } from './nccl.js'

const {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclInProgress,
  ncclRemoteError,
  ncclSystemError,
} = NCCL_RESULT
const F32 = NCCL_TYPES.float32.type

/** The life of a communicator. */
export function stateSuite(machine: () => NcclMachine): void {
  describe('a communicator', () => {
    it('is in progress until all ranks have come', async () => {
      const { nccl, driver } = machine()
      const id = newId(nccl)
      const comms = [0, 1].map(rank => {
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(rank)))
        const comm = new Cell()
        assert.ok([ncclSuccess, ncclInProgress].includes(nccl.ncclCommInitRankConfig(comm, 2, id, rank) as never))
        assert.notEqual(comm.value, 0, 'it is written at once')
        if (rank === 0) for (let i = 0; i < 3; i++) assert.equal(stateOf(nccl, comm.value), ncclInProgress)
        return comm
      })
      assert.deepEqual(await settled(nccl, comms), [ncclSuccess, ncclSuccess])
      for (const { value } of comms) assert.equal(nccl.ncclCommAbort(value), ncclSuccess)
      for (const rank of [0, 1]) driver.cuDevicePrimaryCtxRelease(driver.cuDeviceGet(rank))
    })

    it('of a rank whose peer never comes can be aborted', () => {
      const { nccl, driver } = machine()
      driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)))
      const comm = new Cell()
      nccl.ncclCommInitRankConfig(comm, 2, newId(nccl), 0)
      assert.equal(stateOf(nccl, comm.value), ncclInProgress)
      assert.equal(nccl.ncclCommAbort(comm.value), ncclSuccess)
      driver.cuDevicePrimaryCtxRelease(driver.cuDeviceGet(0))
    })

    it('is finalized by all ranks, and then destroyed', async () => {
      const world = await WorldOfTest.join(machine())
      await world.close()
    })

    it('is aborted while work waits for a rank, whose memory stays whole', async () => {
      const world = await WorldOfTest.join(machine())
      const { nccl, ranks } = world
      const targets = ranks.map(rank => rank.allocate(4))
      await world.group(({ comm, stream }, number) => {
        if (number === 0) nccl.ncclSend(targets[0], 1, F32, 1, comm, stream)
        else nccl.ncclRecv(targets[1], 1, F32, 0, comm, stream)
      })
      const ptr = ranks[0].place('float32', [1, 2, 3])
      const untouched = ranks[0].place('float32', [4, 5, 6])
      nccl.ncclSend(ptr, 3, F32, 1, ranks[0].enter().comm, ranks[0].stream)
      for (const rank of ranks) assert.equal(nccl.ncclCommAbort(rank.enter().comm), ncclSuccess)
      assert.deepEqual(ranks[0].read(untouched, 'float32', 3), [4, 5, 6])
      assert.deepEqual(ranks[0].read(ptr, 'float32', 3), [1, 2, 3])
      for (const rank of ranks) rank.release()
    })

    it('of one rank alone works', async () => {
      const world = await WorldOfTest.join(machine(), 1)
      const [{ comm, stream }] = world.ranks
      const ptr = world.ranks[0].place('float32', [1, 2])
      await world.group(() => {
        world.nccl.ncclAllReduce(ptr, ptr, 2, F32, NCCL_OPS.sum, comm, stream)
      })
      assert.deepEqual(world.ranks[0].read(ptr, 'float32', 2), [1, 2])
      await world.close()
    })

    it('knows its version, and has words for results', () => {
      const { nccl } = machine()
      assert.ok(nccl.version >= LEAST_VERSION && nccl.origin !== '')
      assert.equal(new Set(Object.values(NCCL_RESULT).map(result => nccl.ncclGetErrorString(result))).size > 6, true)
    })
  })
}

/** A world for each test of a chapter, which the test ends by `abort` or `close`. */
function freshWorld(machine: () => NcclMachine): () => WorldOfTest {
  let world: WorldOfTest
  beforeEach(async () => {
    world = await WorldOfTest.join(machine())
  })
  return () => world
}

/** Calls that NCCL refuses. */
export function refusalSuite(machine: () => NcclMachine): void {
  describe('refused:', () => {
    const world = freshWorld(machine)
    afterEach(() => world().abort())

    /** A refused collective. If communicators do not block, this one can only be aborted. */
    const fails = async (expected: number, call: (rank: RankOfTest, ptr: number) => number) => {
      const [rank] = world().ranks
      assert.equal(call(rank, rank.place('float32', [1])), expected)
      assert.ok([expected, ncclSuccess].includes(stateOf(world().nccl, rank.comm) as never))
      assert.notEqual(world().nccl.ncclGetLastError(rank.comm), '')
    }

    it('a type that there is not', () =>
      fails(ncclInvalidArgument, ({ comm, stream }, ptr) =>
        world().nccl.ncclAllReduce(ptr, ptr, 1, 99, NCCL_OPS.sum, comm, stream),
      ))

    it('an operation that there is not', () =>
      fails(ncclInvalidArgument, ({ comm, stream }, ptr) =>
        world().nccl.ncclAllReduce(ptr, ptr, 1, F32, -1, comm, stream),
      ))

    it('a root that there is not', () =>
      fails(ncclInvalidArgument, ({ comm, stream }, ptr) =>
        world().nccl.ncclBroadcast(ptr, ptr, 1, F32, 2, comm, stream),
      ))

    it('a peer that there is not', () =>
      fails(ncclInvalidArgument, ({ comm, stream }, ptr) => world().nccl.ncclSend(ptr, 1, F32, 2, comm, stream)))

    it('no communicator, and the end of no group', () => {
      const { nccl, ranks } = world()
      assert.equal(nccl.ncclAllReduce(0, 0, 1, F32, NCCL_OPS.sum, 0, ranks[0].stream), ncclInvalidArgument)
      assert.equal(nccl.ncclGroupEnd(), ncclInvalidUsage)
    })

    it('a group with a refused call, as a whole', () => {
      const { nccl, ranks } = world()
      const ptrs = ranks.map(rank => rank.place('float32', [1]))
      nccl.ncclGroupStart()
      for (const [number, { comm, stream }] of ranks.entries()) {
        nccl.ncclAllReduce(ptrs[number], ptrs[number], 1, number === 0 ? F32 : 99, NCCL_OPS.sum, comm, stream)
      }
      assert.equal(nccl.ncclGroupEnd(), ncclInvalidArgument)
      for (const [number, rank] of ranks.entries()) assert.deepEqual(rank.read(ptrs[number], 'float32', 1), [1])
    })
  })

  describe('refused for all ranks:', () => {
    /** The first result that is neither success nor progress. */
    const refusal = async (ranks: number, rank: number, id: Uint8Array) => {
      const { nccl, driver } = machine()
      driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)))
      const comm = new Cell()
      let result = nccl.ncclCommInitRankConfig(comm, ranks, id, rank)
      if (result === ncclSuccess || result === ncclInProgress) {
        const states = await settled(nccl, [comm])
        result = states[0]
        assert.equal(nccl.ncclCommAbort(comm.value), ncclSuccess)
      }
      driver.cuDevicePrimaryCtxRelease(driver.cuDeviceGet(0))
      return result
    }

    it('a window of memory of cuMemAlloc', async test => {
      if (machine().nccl.version < NCCL_SINCE.ncclCommWindowRegister) return test.skip('this version has no windows')
      const world = await WorldOfTest.join(machine())
      const windows = world.ranks.map(() => new Cell())
      const ptrs = world.ranks.map(rank => Math.ceil(rank.allocate(4 * MiB) / (2 * MiB)) * 2 * MiB)
      world.nccl.ncclGroupStart()
      for (const [number, rank] of world.ranks.entries()) {
        const { comm } = rank.enter()
        world.nccl.ncclCommWindowRegister(comm, ptrs[number], 2 * MiB, windows[number], WINDOW_SYMMETRIC)
      }
      const ended = world.nccl.ncclGroupEnd()
      const states = ended === ncclInProgress ? await world.settle() : [ended]
      for (const state of states) assert.equal(state, ncclUnhandledCudaError)
      world.abort()
    })

    it('a rank that is not below the number of ranks', async () => {
      for (const rank of [-1, 2]) assert.equal(await refusal(2, rank, newId(machine().nccl)), ncclInvalidArgument)
    })

    it('an id that was never made', async () => {
      const result = await refusal(1, 0, new Uint8Array(128).fill(7))
      const possible = [ncclSystemError, 3, ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError]
      assert.ok(possible.includes(result as never), `${result}`)
    })

    it('two ranks on one device', async () => {
      const world = WorldOfTest.begin(machine(), 2, () => 0)
      assert.deepEqual(await world.settle(), [ncclInvalidUsage, ncclInvalidUsage])
      assert.notEqual(world.nccl.ncclGetLastError(world.ranks[0].comm), '')
      world.abort()
    })
  })
}
