// Cached blocks that the pool server takes away, in the cases that need few threads.

import { assert } from '../../../src/core/base/assert.js'
import { Double, Word } from '../../../src/core/heap/records.js'
import type { DeviceBuffer } from '../../../src/core/pool/buffer.js'
import type { SharedPool } from '../../../src/core/pool/shared/shared-pool.js'
import { type Cast, mayBeCut, type Scenario } from '../stage.js'
import { BYTES, checkAll, newPool, servedPool } from './shared-pool.js'

const KiB = 1024
const MiB = 2 ** 20
/** Blocks of the largest size that a thread caches in so small a pool. */
const SIZE = 4 * KiB
const COUNT = 32

/**
 * A thread takes a cached block, frees it and takes it again, while a second thread takes it away like the pool
 * server.
 */
function takingOne(): Cast {
  const made = servedPool(2) // one block stays cached, so that neighbours do not merge
  const { pool, held, take, give } = made
  const state = made.newState()
  const { words, doubles } = state.records
  const { record } = held[0]
  held[0].free()
  const hit = () => {
    for (let turn = 0; turn < 2; turn++) {
      const buffer = pool.allocate(BYTES)
      take(buffer, 1)
      if (turn === 1) held[0] = buffer
      else {
        give(buffer)
        buffer.free()
      }
    }
  }
  const takeAway = () =>
    state.locked(() => {
      if (!state.caches['takeAway'](record)) return
      state.memory.giveToHeap(record, words[(record << 4) | Word.key] - 1, doubles[(record << 3) | Double.stamp])
    })
  const end = () => {
    for (const buffer of held) buffer.free()
    state.registry.forget(state.thread)
    checkAll(made)
  }
  return { threads: [hit, takeAway], end }
}

/** A thread shuts the biased locks like the pool server, while a second thread takes the lock. */
function besideTheLock(): Cast {
  const { newState } = newPool()
  const [server, other] = [newState(), newState()]
  const shut = () => {
    server.locked(() => {
      const { biasedLock } = server.caches
      biasedLock.shut()
      for (let look = 0; look < 3; look++) assert(biasedLock.isShut, 'biased locks are shut until they are opened')
    })
  }
  const lock = () => {
    for (let turn = 0; turn < 2; turn++) other.locked(() => {})
  }
  return { threads: [shut, lock], end: () => assert(!other.caches.biasedLock.isShut, 'and open then') }
}

/** All blocks of a size that a pool still has. */
function all(pool: SharedPool, bytes: number): DeviceBuffer[] {
  const buffers: DeviceBuffer[] = []
  for (let one = pool.tryAllocate(bytes); one !== null; one = pool.tryAllocate(bytes)) buffers.push(one)
  return buffers
}

/** A pool that is full except for its creator's cached blocks. */
function fullPool() {
  const made = servedPool(0, { maxPoolBytes: 2 * MiB })
  const { pool } = made
  const cached = Array.from({ length: COUNT }, () => pool.allocate(SIZE))
  const rest = [512 * KiB, 64 * KiB, 2 * SIZE].flatMap(bytes => all(pool, bytes))
  for (const buffer of cached.reverse()) buffer.free()
  return { ...made, rest }
}

/** A thread gets all cached blocks of a second thread, which then splits a larger block for a small request. */
function breaking(): Cast {
  const made = fullPool()
  const { pool, rest, take } = made
  const other = made.attach(false, () => made.server.serve())
  const work = () => {
    const taken = [2 * SIZE, SIZE, KiB / 4].flatMap(bytes => all(other, bytes))
    for (const buffer of taken) take(buffer, 2)
    const small = pool.tryAllocate(KiB / 4)
    if (small !== null) take(small, 1)
    for (const buffer of taken) buffer.free()
    if (small !== null) small.free()
  }
  const end = () => {
    for (const buffer of rest) buffer.free()
    other.close()
    checkAll(made)
  }
  return { threads: [work], end }
}

/** A thread gives back its cached blocks after a call that is cut short anywhere. */
function cutShort(): Cast {
  const { pool, held } = servedPool(3)
  for (const buffer of held) buffer.free()
  const work = () => {
    mayBeCut(() => pool.allocate(BYTES))
    pool.trimTo(0)
    assert(pool.stats().cachedBytes === 0, 'the pool server takes away what a thread caches')
  }
  return { threads: [work] }
}

export const scenarios: Record<string, Scenario> = {
  'a cached block is taken or taken away': { begin: takingOne },
  'biased locks that the pool server has shut stay shut, whoever takes the lock': { begin: besideTheLock },
  'a thread breaks no block that was taken away from it': { begin: breaking, mostSteps: 500_000 },
  'what a thread caches whose call was cut short can be taken away': { begin: cutShort, mostSteps: 500_000 },
}
