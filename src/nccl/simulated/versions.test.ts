// Differences between versions of NCCL: memory of several mappings, windows, and calls that complete later.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../core/base/bytes.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { NCCL_RESULT, NCCL_SINCE, STAT_TOTAL, SUSPEND_MEMORY, WINDOW_SYMMETRIC } from '../constants.js'
import { stateOf } from '../nccl.fixture.js'
import { Cell, type NcclCall } from '../nccl.js'
import { openSimulatedNccl } from './simulated-nccl.js'
import { allReduce, openWorld, register, type SimulatedWorld } from './world.fixture.js'

const { ncclSuccess, ncclUnhandledCudaError, ncclInvalidArgument, ncclInvalidUsage, ncclInProgress } = NCCL_RESULT
const BYTES = 2 * MiB

/** The state of both ranks after they have registered a window, which NCCL refuses at once, or opens later. */
async function windowStates(
  { nccl, world }: SimulatedWorld,
  ptrs: readonly number[],
  bytes: number,
  expected: number,
): Promise<number[]> {
  const windows = world.ranks.map(() => new Cell())
  for (const [number, { comm }] of world.ranks.entries()) {
    const result = nccl.ncclCommWindowRegister(comm, ptrs[number], bytes, windows[number], WINDOW_SYMMETRIC)
    assert.equal(result === ncclInProgress ? ncclSuccess : result, expected)
  }
  const states = await world.settle()
  for (const [number, { value }] of windows.entries()) assert.equal(value > 0, states[number] === ncclSuccess)
  return states
}

test('registered memory of several mappings has no effect, is wrong, or is right', async () => {
  for (const [version, isRight] of [
    [21903, true],
    [22203, true],
    [22304, false],
    [22809, false],
    [22902, true],
    [23007, true],
  ] as const) {
    const { nccl, first, second, world } = await openWorld({ version })
    const ptrs = [first, second].map(rank => rank.map(BYTES, 2))
    for (const [number, rank] of world.ranks.entries()) register(nccl, rank, ptrs[number], 2 * BYTES)
    const useAt = (offset: number) => world.group((rank, number) => allReduce(nccl, rank, ptrs[number] + offset))
    await useAt(0)
    if (isRight) await useAt(BYTES)
    else await assert.rejects(useAt(BYTES), { name: 'NcclMistake' }, `${version}`)
  }
})

test('plain memory is registered without an effect', async () => {
  for (const version of [21903, 22304, 23007]) {
    const { nccl, first, world } = await openWorld({ version })
    const ptr = first.allocate(BYTES)
    assert.equal(nccl.ncclCommDeregister(first.comm, register(nccl, first, ptr, BYTES)), ncclSuccess)
    assert.equal(nccl.registered, 0)
    await world.close()
  }
})

test('windows over several mappings are refused before 2.30, and fail the communicator', async () => {
  for (const [version, state] of [
    [22707, ncclInvalidArgument],
    [22902, ncclInvalidArgument],
    [23007, ncclSuccess],
  ]) {
    const opened = await openWorld({ version })
    const ptrs = opened.world.ranks.map(rank => rank.map(BYTES, 2))
    assert.deepEqual(await windowStates(opened, ptrs, 2 * BYTES, state), [state, state], `${version}`)
    assert.equal(opened.nccl.registered, state === ncclSuccess ? 2 : 0)
    if (state !== ncclSuccess) assert.match(opened.nccl.ncclGetLastError(opened.first.comm), /over 2 mappings/)
    opened.world.abort()
  }
})

test('windows begin at units of 2 MiB in 2.27, and at units of 4096 bytes later', async () => {
  for (const [version, offset, bytes, state] of [
    [22707, 4096, BYTES, ncclInvalidArgument],
    [22707, 0, 4096, ncclInvalidArgument],
    [22707, 0, BYTES, ncclSuccess],
    [22809, 4096, 8192, ncclSuccess],
    [23007, 4096, 8192, ncclSuccess],
    [23007, 512, 8192, ncclInvalidArgument],
  ]) {
    const opened = await openWorld({ version })
    const ptrs = opened.world.ranks.map(rank => rank.map(2 * BYTES) + offset)
    assert.deepEqual(
      await windowStates(opened, ptrs, bytes, state),
      [state, state],
      `${version}: ${bytes} at ${offset}`,
    )
    opened.world.abort()
  }
})

test('windows of plain memory are refused, and machines without windows give none', async () => {
  const opened = await openWorld()
  const ptrs = opened.world.ranks.map(rank => rank.allocate(BYTES))
  const refused = ncclUnhandledCudaError
  assert.deepEqual(await windowStates(opened, ptrs, BYTES, refused), [refused, refused])
  opened.world.abort()

  const { nccl, first, world } = await openWorld({ windows: false })
  const window = new Cell()
  window.value = 5
  assert.equal(nccl.ncclCommWindowRegister(first.comm, first.map(BYTES), BYTES, window, WINDOW_SYMMETRIC), ncclSuccess)
  assert.deepEqual([window.value, nccl.ncclCommWindowDeregister(first.comm, 0)], [0, ncclSuccess])
  await world.close()
})

test('functions are there from their version on', () => {
  for (const [name, since] of Object.entries(NCCL_SINCE) as [NcclCall, number][]) {
    const call = (version: number) => {
      const nccl = openSimulatedNccl(new SimulatedDriver(), { version })
      return (nccl[name] as (...args: unknown[]) => number)(0, 0, 0, new Cell(), 0, 0)
    }
    assert.throws(() => call(since - 1), { name: 'NcclMistake', message: new RegExp(`lacks ${name}`) })
    assert.equal(call(since), ncclInvalidArgument, 'no communicator')
  }
  assert.throws(() => openSimulatedNccl(new SimulatedDriver(), { version: 21800 }), {
    message: /NCCL 2.18.0 is not used/,
  })
})

test('a suspended communicator holds little memory, and takes no collectives', async () => {
  const { nccl, world, first } = await openWorld({ version: 22907 })
  const bytes = () => {
    const value = new Cell()
    assert.equal(nccl.ncclCommMemStats(first.comm, STAT_TOTAL, value), ncclSuccess)
    return value.value
  }
  const before = bytes()
  assert.equal(nccl.ncclCommResume(first.comm), ncclInvalidUsage)
  assert.equal(nccl.ncclCommSuspend(first.comm, SUSPEND_MEMORY + 1), ncclInvalidArgument)
  for (const { comm } of world.ranks) nccl.ncclCommSuspend(comm, SUSPEND_MEMORY)
  await world.settle()
  assert.ok(bytes() < before / 10)
  const ptr = first.place('float32', [1])
  assert.equal(allReduce(nccl, first, ptr), ncclInvalidUsage)
  assert.equal(nccl.ncclCommResume(first.comm), ncclInProgress)
  for (let i = 0; i < 3; i++) assert.equal(stateOf(nccl, first.comm), ncclInProgress, 'the other rank has not resumed')
  assert.equal(allReduce(nccl, first, ptr), ncclInvalidArgument, 'before it has completed')
  assert.match(nccl.ncclGetLastError(0), /ncclAllReduce: attempt to use a communicator before/)
  nccl.ncclCommResume(world.ranks[1].comm)
  await world.settle()
  assert.equal(bytes(), before)
  await world.close()
})
