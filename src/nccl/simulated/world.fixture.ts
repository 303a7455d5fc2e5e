// Worlds of the simulated NCCL for its own tests.

import assert from 'node:assert/strict'
import type { SimulatedOptions } from '../../core/driver/simulated/options.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { NCCL_OPS, NCCL_TYPES } from '../constants.js'
import { type RankOfTest, WorldOfTest } from '../nccl.fixture.js'
import { Cell } from '../nccl.js'
import type { SimulatedNcclOptions } from './nccl-steps.js'
import { openSimulatedNccl, type SimulatedNccl } from './simulated-nccl.js'

/** A world of two ranks in this thread, on simulated devices. */
export interface SimulatedWorld {
  readonly driver: SimulatedDriver
  readonly nccl: SimulatedNccl
  readonly world: WorldOfTest
  readonly first: RankOfTest
  readonly second: RankOfTest
}

export async function openWorld(
  options: SimulatedNcclOptions = {},
  device: SimulatedOptions = { progress: 'eager' },
): Promise<SimulatedWorld> {
  const driver = new SimulatedDriver({ devices: 2, ...device })
  driver.cuInit()
  const nccl = openSimulatedNccl(driver, options)
  const world = await WorldOfTest.join({ driver, nccl })
  const [first, second] = world.ranks
  return { driver, nccl, world, first, second }
}

/** All-reduces `count` float32 in place on one rank; returns the result. */
export function allReduce(nccl: SimulatedNccl, { comm, stream }: RankOfTest, ptr: number, count = 1): number {
  return nccl.ncclAllReduce(ptr, ptr, count, NCCL_TYPES.float32.type, NCCL_OPS.sum, comm, stream)
}

/** Registers memory; returns the handle. */
export function register(nccl: SimulatedNccl, rank: RankOfTest, ptr: number, bytes: number): number {
  const handle = new Cell()
  assert.equal(nccl.ncclCommRegister(rank.enter().comm, ptr, bytes, handle), 0)
  return handle.value
}
