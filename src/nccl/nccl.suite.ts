// The contract tests of NCCL: the simulation passes them, and libnccl on two GPUs. Behaviour that hangs or kills a
// context on GPUs is tested with the simulation alone.

import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import {
  NCCL_OPS,
  NCCL_RESULT,
  NCCL_SINCE,
  NCCL_TYPES,
  type NcclOp,
  type NcclType,
  STAT_TOTAL,
  SUSPEND_MEMORY,
  WINDOW_SYMMETRIC,
} from './constants.js'
import { type NcclMachine, type RankOfTest, WorldOfTest } from './nccl.fixture.js'
import { Cell } from './nccl.js'
import { refusalSuite, stateSuite } from './nccl-states.suite.js'

const { ncclSuccess, ncclInProgress } = NCCL_RESULT
const TYPES = Object.keys(NCCL_TYPES) as NcclType[]
const OPS = Object.keys(NCCL_OPS) as NcclOp[]
const COUNT = 7
const F32 = NCCL_TYPES.float32.type

/** Element `i` of rank `rank`. All results fit into int8, and are exact in bfloat16. */
function element(rank: number, i: number): number {
  return (rank + 1) * (i + 1)
}

function elements(rank: number, count = COUNT): number[] {
  return Array.from({ length: count }, (_, i) => element(rank, i))
}

/** Element `i` of both ranks, combined. */
function combined(op: NcclOp, type: NcclType, i: number): number {
  const [a, b] = [element(0, i), element(1, i)]
  switch (op) {
    case 'sum':
      return a + b
    case 'prod':
      return a * b
    case 'max':
      return Math.max(a, b)
    case 'min':
      return Math.min(a, b)
    case 'avg':
      return type.includes('float') ? (a + b) / 2 : Math.trunc((a + b) / 2)
  }
}

/** Runs the contract tests. `open` is called once, and gives at least two devices. */
export function ncclSuite(name: string, open: () => NcclMachine): void {
  describe(`NCCL contract: ${name}`, () => {
    let machine: NcclMachine
    before(() => {
      machine = open()
      machine.driver.cuInit()
    })
    collectiveSuite(() => machine)
    messageSuite(() => machine)
    memorySuite(() => machine)
    stateSuite(() => machine)
    refusalSuite(() => machine)
  })
}

/** A world that the tests of one chapter share. */
function sharedWorld(machine: () => NcclMachine): () => WorldOfTest {
  let world: WorldOfTest
  before(async () => {
    world = await WorldOfTest.join(machine())
  })
  after(() => world.close())
  return () => world
}

function collectiveSuite(machine: () => NcclMachine): void {
  describe('collectives', () => {
    const world = sharedWorld(machine)

    for (const type of TYPES) {
      it(`all-reduce and reduce combine ${type} by each operation`, async () => {
        for (const op of OPS) await reduces(world(), type, op)
      })

      it(`reduce-scatter, all-gather, broadcast and all-to-all move ${type}`, async () => {
        await scatters(world(), type)
        await gathers(world(), type)
        await broadcasts(world(), type)
        if (machine().nccl.version >= NCCL_SINCE.ncclAlltoAll) await exchanges(world(), type)
      })
    }

    it('buffers of all-reduce, all-gather and reduce-scatter may be the same', async () => {
      const { nccl } = world()
      const wide = world().ranks.map((rank, number) => rank.place('int32', elements(number, 2 * COUNT)))
      const bytes = COUNT * 4
      const { int32 } = NCCL_TYPES
      await world().group(({ comm, stream }, number) => {
        const own = wide[number] + number * bytes
        nccl.ncclReduceScatter(wide[number], own, COUNT, int32.type, NCCL_OPS.sum, comm, stream)
      })
      for (const [number, rank] of world().ranks.entries()) {
        const sums = Array.from({ length: COUNT }, (_, i) => combined('sum', 'int32', number * COUNT + i))
        assert.deepEqual(rank.read(wide[number] + number * bytes, 'int32', COUNT), sums)
      }
      await world().group(({ comm, stream }, number) => {
        nccl.ncclAllGather(wide[number] + number * bytes, wide[number], COUNT, int32.type, comm, stream)
      })
      const all = Array.from({ length: 2 * COUNT }, (_, i) => combined('sum', 'int32', i))
      for (const [number, rank] of world().ranks.entries()) {
        assert.deepEqual(rank.read(wide[number], 'int32', 2 * COUNT), all)
      }
      await world().group(({ comm, stream }, number) => {
        nccl.ncclAllReduce(wide[number], wide[number], 2 * COUNT, int32.type, NCCL_OPS.max, comm, stream)
      })
      for (const [number, rank] of world().ranks.entries()) {
        assert.deepEqual(rank.read(wide[number], 'int32', 2 * COUNT), all)
      }
    })

    it('work of the stream before and after a collective keeps its order', async () => {
      const { nccl, driver } = world()
      const ptrs = world().ranks.map(rank => rank.place('float32', [0, 0]))
      for (const [number, rank] of world().ranks.entries()) {
        rank.enter()
        driver.cuMemsetD32Async(ptrs[number], 0x3f80_0000, 2, rank.stream) // 1
      }
      for (let round = 0; round < 3; round++) {
        await world().group(({ comm, stream }, number) => {
          nccl.ncclAllReduce(ptrs[number], ptrs[number], 2, F32, NCCL_OPS.sum, comm, stream)
        })
      }
      for (const [number, rank] of world().ranks.entries()) {
        assert.deepEqual(rank.read(ptrs[number], 'float32', 2), [8, 8])
      }
    })

    it('several collectives in one group all run', async () => {
      const { nccl } = world()
      const ptrs = world().ranks.map((rank, number) => [1, 2, 3].map(i => rank.place('float32', [number + i])))
      const targets = world().ranks.map(rank => [1, 2, 3].map(() => rank.allocate(8)))
      await world().group(({ comm, stream }, number) => {
        const [[a, b, c], [x, y, z]] = [ptrs[number], targets[number]]
        nccl.ncclAllReduce(a, x, 1, F32, NCCL_OPS.sum, comm, stream)
        nccl.ncclAllGather(b, y, 1, F32, comm, stream)
        nccl.ncclBroadcast(c, z, 1, F32, 1, comm, stream)
      })
      for (const [number, rank] of world().ranks.entries()) {
        const [x, y, z] = targets[number]
        assert.deepEqual([rank.read(x, 'float32', 1), rank.read(y, 'float32', 2)], [[3], [2, 3]])
        assert.deepEqual(rank.read(z, 'float32', 1), [4])
      }
    })
  })
}

/** Calls `call` on all ranks with a source of `send` elements and a target, and returns what each target then has. */
async function move(
  world: WorldOfTest,
  type: NcclType,
  send: number,
  receive: number,
  call: (rank: RankOfTest, source: number, target: number) => number,
): Promise<number[][]> {
  const sources = world.ranks.map((rank, number) => rank.place(type, elements(number, send)))
  const targets = world.ranks.map(rank => rank.place(type, Array(receive).fill(0)))
  await world.group((rank, number) => {
    const result = call(rank, sources[number], targets[number])
    assert.equal(result, ncclSuccess, world.why(result))
  })
  return world.ranks.map((rank, number) => rank.read(targets[number], type, receive))
}

async function reduces(world: WorldOfTest, type: NcclType, op: NcclOp): Promise<void> {
  const { nccl } = world
  const code = NCCL_TYPES[type].type
  const expected = Array.from({ length: COUNT }, (_, i) => combined(op, type, i))
  const all = await move(world, type, COUNT, COUNT, ({ comm, stream }, source, target) =>
    nccl.ncclAllReduce(source, target, COUNT, code, NCCL_OPS[op], comm, stream),
  )
  assert.deepEqual(all, [expected, expected], `${op} of ${type}`)
  const [other, root] = await move(world, type, COUNT, COUNT, ({ comm, stream }, source, target) =>
    nccl.ncclReduce(source, target, COUNT, code, NCCL_OPS[op], 1, comm, stream),
  )
  assert.deepEqual([other, root], [Array(COUNT).fill(0), expected], `${op} of ${type} to rank 1`)
}

async function scatters(world: WorldOfTest, type: NcclType): Promise<void> {
  const results = await move(world, type, 6, 3, ({ comm, stream }, source, target) =>
    world.nccl.ncclReduceScatter(source, target, 3, NCCL_TYPES[type].type, NCCL_OPS.sum, comm, stream),
  )
  const sums = Array.from({ length: 6 }, (_, i) => combined('sum', type, i))
  assert.deepEqual(results, [sums.slice(0, 3), sums.slice(3)])
}

async function gathers(world: WorldOfTest, type: NcclType): Promise<void> {
  const results = await move(world, type, COUNT, 2 * COUNT, ({ comm, stream }, source, target) =>
    world.nccl.ncclAllGather(source, target, COUNT, NCCL_TYPES[type].type, comm, stream),
  )
  const all = [...elements(0), ...elements(1)]
  assert.deepEqual(results, [all, all])
}

async function broadcasts(world: WorldOfTest, type: NcclType): Promise<void> {
  for (const root of [0, 1]) {
    const results = await move(world, type, COUNT, COUNT, ({ comm, stream }, source, target) =>
      world.nccl.ncclBroadcast(source, target, COUNT, NCCL_TYPES[type].type, root, comm, stream),
    )
    assert.deepEqual(results, [elements(root), elements(root)])
  }
}

async function exchanges(world: WorldOfTest, type: NcclType): Promise<void> {
  const results = await move(world, type, 6, 6, ({ comm, stream }, source, target) =>
    world.nccl.ncclAlltoAll(source, target, 3, NCCL_TYPES[type].type, comm, stream),
  )
  const part = (rank: number, half: number) => elements(rank, 6).slice(3 * half, 3 * half + 3)
  assert.deepEqual(results, [
    [...part(0, 0), ...part(1, 0)],
    [...part(0, 1), ...part(1, 1)],
  ])
}

function messageSuite(machine: () => NcclMachine): void {
  describe('messages', () => {
    const world = sharedWorld(machine)

    it('go in either direction', async () => {
      for (const [from, to] of [
        [0, 1],
        [1, 0],
      ]) {
        const results = await move(world(), 'int32', COUNT, COUNT, ({ comm, stream, device }, source, target) =>
          device === world().ranks[from].device
            ? world().nccl.ncclSend(source, COUNT, NCCL_TYPES.int32.type, to, comm, stream)
            : world().nccl.ncclRecv(target, COUNT, NCCL_TYPES.int32.type, from, comm, stream),
        )
        assert.deepEqual(results[to], elements(from))
        assert.deepEqual(results[from], Array(COUNT).fill(0))
      }
    })

    it('in one group go in both directions at the same time, and to oneself', async () => {
      const { nccl } = world()
      const results = await move(world(), 'float32', 2, 4, ({ comm, stream, device }, source, target) => {
        const own = world().ranks.findIndex(rank => rank.device === device)
        for (const peer of [0, 1]) {
          const result = nccl.ncclSend(source, 2, F32, peer, comm, stream)
          if (result !== ncclSuccess) return result
        }
        nccl.ncclRecv(target, 2, F32, own, comm, stream)
        return nccl.ncclRecv(target + 8, 2, F32, 1 - own, comm, stream)
      })
      assert.deepEqual(results, [
        [...elements(0, 2), ...elements(1, 2)],
        [...elements(1, 2), ...elements(0, 2)],
      ])
    })

    it('between two ranks keep their order', async () => {
      const { nccl, ranks } = world()
      const sources = [1, 2, 3].map(value => ranks[0].place('float32', [value]))
      const targets = [1, 2, 3].map(() => ranks[1].place('float32', [0]))
      await world().group(({ comm, stream }, number) => {
        for (const ptr of number === 0 ? sources : targets) {
          if (number === 0) nccl.ncclSend(ptr, 1, F32, 1, comm, stream)
          else nccl.ncclRecv(ptr, 1, F32, 0, comm, stream)
        }
      })
      assert.deepEqual(
        targets.map(target => ranks[1].read(target, 'float32', 1)),
        [[1], [2], [3]],
      )
      ranks[0].read(sources[0], 'float32', 1)
    })
  })
}

function memorySuite(machine: () => NcclMachine): void {
  describe('registered memory', () => {
    const world = sharedWorld(machine)

    /** All-reduces the first elements of memory of both ranks in place. */
    const reduced = async (ptrs: readonly number[]) => {
      const { nccl, ranks } = world()
      for (const [number, rank] of ranks.entries()) rank.write(ptrs[number], 'float32', elements(number))
      await world().group(({ comm, stream }, number) => {
        nccl.ncclAllReduce(ptrs[number], ptrs[number], COUNT, F32, NCCL_OPS.sum, comm, stream)
      })
      const sums = Array.from({ length: COUNT }, (_, i) => combined('sum', 'float32', i))
      for (const [number, rank] of ranks.entries()) assert.deepEqual(rank.read(ptrs[number], 'float32', COUNT), sums)
    }

    it('is used by collectives, and deregistered', async () => {
      const { nccl, ranks } = world()
      const ptrs = ranks.map(rank => rank.map(2 * MiB))
      const handles = ranks.map((rank, number) => {
        const handle = new Cell()
        assert.equal(nccl.ncclCommRegister(rank.enter().comm, ptrs[number], 2 * MiB, handle), ncclSuccess)
        return handle.value
      })
      await reduced(ptrs)
      await reduced(ptrs.map(ptr => ptr + 4096))
      for (const [number, rank] of ranks.entries()) {
        assert.equal(nccl.ncclCommDeregister(rank.enter().comm, handles[number]), ncclSuccess)
      }
      await reduced(ptrs)
    })

    it('is plain memory, too', async () => {
      const { nccl, ranks } = world()
      const ptrs = ranks.map(rank => rank.allocate(2 * MiB))
      for (const [number, rank] of ranks.entries()) {
        const handle = new Cell()
        assert.equal(nccl.ncclCommRegister(rank.enter().comm, ptrs[number], 2 * MiB, handle), ncclSuccess)
        assert.equal(nccl.ncclCommDeregister(rank.comm, handle.value), ncclSuccess)
      }
      await reduced(ptrs)
    })

    it('is a window of all ranks', async test => {
      const { nccl, ranks } = world()
      if (nccl.version < NCCL_SINCE.ncclCommWindowRegister) return test.skip('this version has no windows')
      const ptrs = ranks.map(rank => rank.map(2 * MiB))
      const windows = ranks.map(() => new Cell())
      await world().group((rank, number) => {
        nccl.ncclCommWindowRegister(rank.enter().comm, ptrs[number], 2 * MiB, windows[number], WINDOW_SYMMETRIC)
      })
      await reduced(ptrs)
      await reduced(ptrs.map(ptr => ptr + 8192))
      for (const [number, rank] of ranks.entries()) {
        assert.equal(nccl.ncclCommWindowDeregister(rank.enter().comm, windows[number].value), ncclSuccess)
      }
      await reduced(ptrs)
    })

    it("of NCCL's own goes back while a communicator is suspended", async test => {
      const { nccl, ranks } = world()
      if (nccl.version < NCCL_SINCE.ncclCommSuspend) return test.skip('this version cannot suspend')
      if (!nccl.simulated) return test.skip('two ranks of one thread would wait for each other')
      const bytes = () => {
        const value = new Cell()
        assert.equal(nccl.ncclCommMemStats(ranks[0].comm, STAT_TOTAL, value), ncclSuccess)
        return value.value
      }
      const before = bytes()
      const together = async (call: (comm: number) => number) => {
        for (const { comm } of ranks) assert.ok([ncclSuccess, ncclInProgress].includes(call(comm) as never))
        assert.deepEqual(await world().settle(), [ncclSuccess, ncclSuccess])
      }
      await together(comm => nccl.ncclCommSuspend(comm, SUSPEND_MEMORY))
      await together(comm => nccl.ncclCommResume(comm))
      assert.ok(bytes() <= before)
      await reduced(ranks.map(rank => rank.allocate(64)))
    })
  })
}
