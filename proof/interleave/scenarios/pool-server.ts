// Threads of a shared pool beside its pool server, which die, leave or ask for new memory.

import { assert } from '../../../src/core/base/assert.js'
import type { DeviceBuffer } from '../../../src/core/pool/buffer.js'
import { type Cast, isOverNow, mayDie, type Scenario } from '../stage.js'
import { BYTES, checkAll, newPool, servedPool } from './shared-pool.js'

const MiB = 2 ** 20
/** The simulated device has none below. */
const LEAST_ADDRESS = 2 ** 32

/** A thread may die, even during a request to the pool server; a second thread works on. */
function dying(): Cast {
  const made = servedPool(1)
  const { server, take, give, held } = made
  held[0].free()
  const die = () => {
    const own = made.attach()
    const [, one, other] = [2 * MiB, BYTES, 3 * BYTES].map(bytes => own.allocate(bytes))
    one.recordUse(own.defaultStream)
    other.free()
    one.free()
  }
  const keep = () => {
    while (!isOverNow(0)) server.serve()
    server.sweep()
    server.serve() // the pool server drops a dead thread's request
    server.sweep()
  }
  const work = () => {
    for (let turn = 0; turn < 3; turn++) {
      const buffer = made.pool.allocate(BYTES)
      take(buffer, 2)
      give(buffer)
      buffer.free()
    }
  }
  const end = () => {
    checkAll(made)
    assert(server['central'].deferred['announced'].size === 0, 'what is given back is announced to no stream')
  }
  return { threads: [() => mayDie(die), keep, work], end }
}

/** A thread frees a second thread's blocks, and leaves while the second thread takes them out. */
function leaving(): Cast {
  const made = servedPool(6)
  const { pool, server, held, take } = made
  const sent = held.map(buffer => buffer.transfer())
  const own = made.attach()
  held.length = 0
  let isKept = true
  const consume = () => {
    for (const one of sent) own.adopt(one).free()
    own.close()
    isKept = false
  }
  const allocate = () => {
    for (let turn = 0; turn < 5; turn++) {
      const buffer = pool.allocate(BYTES)
      take(buffer, 1)
      held.push(buffer)
    }
  }
  const keep = () => {
    while (isKept) server.serve()
  }
  const end = () => {
    for (const buffer of held) buffer.free()
    checkAll(made)
  }
  return { threads: [consume, allocate, keep], end }
}

/** Threads that need new memory, whose address they must know. */
function growing(): Cast {
  const made = newPool({ backing: 'segments' })
  const server = made.newServer()
  const pool = made.attach(true, () => server.serve())
  const others = [made.attach(), made.attach()]
  let working = 2
  const held: DeviceBuffer[] = []
  const grow = (index: number) => {
    for (const bytes of [3 * MiB, BYTES, 4 * MiB]) {
      const buffer = others[index].allocate(bytes)
      assert(buffer.ptr > LEAST_ADDRESS, 'a buffer has an address')
      made.take(buffer, index)
      held.push(buffer)
    }
    working--
  }
  const keep = () => {
    while (working > 0) server.serve()
  }
  const end = () => {
    for (const buffer of held) buffer.free()
    pool.check()
  }
  return { threads: [() => grow(0), () => grow(1), keep], end }
}

/** A thread ends with a buffer and is reclaimed, then a second thread with its number. */
function renamed(): Cast {
  const made = servedPool(1)
  const { pool, held } = made
  held[0].free()
  const names: number[] = []
  const end = () => {
    const own = made.attach()
    names.push(own.thread)
    own.allocate(BYTES)
  }
  const reclaim = () => {
    end()
    assert(names[0] !== names[1], 'no two threads have one name')
  }
  return {
    threads: [
      end,
      () => assert(pool.reclaim(names[0]).buffers === 1, 'what a dead thread had goes back'),
      reclaim,
      () => assert(pool.reclaim(names[0]).buffers === 0, 'a name is not that of a later thread'),
    ],
    heirs: { 1: 0, 2: 1, 3: 2 },
    end: () => checkAll(made),
  }
}

/** A thread asks for a block that fits only if the pool server takes away the thread's cached blocks. */
function returning(): Cast {
  const made = servedPool(0, { maxPoolBytes: 2 * MiB })
  const { pool } = made
  const work = () => {
    const small = Array.from({ length: 32 }, () => pool.allocate(4096))
    const large: DeviceBuffer[] = []
    for (const bytes of [512 * 1024, 64 * 1024, 4096 * 2]) {
      for (let one = pool.tryAllocate(bytes); one !== null; one = pool.tryAllocate(bytes)) large.push(one)
    }
    for (const buffer of small.reverse()) buffer.free()
    const merged = pool.allocate(48 * 1024)
    const again = pool.allocate(4096)
    for (const buffer of [merged, again, ...large]) buffer.free()
  }
  return { threads: [work], end: () => checkAll(made) }
}

export const scenarios: Record<string, Scenario> = {
  'a thread dies anywhere, and all that it had goes back': { isLarge: true, begin: dying, mostSteps: 200_000 },
  'a thread leaves while what it has sent back is taken out': { isLarge: true, begin: leaving, mostSteps: 200_000 },
  'a record that comes back is another block': { begin: returning, mostSteps: 500_000 },
  'new memory has its address when it is handed out': { isLarge: true, begin: growing, mostSteps: 200_000 },
  'a thread is reclaimed under its own name': { isLarge: true, begin: renamed, mostSteps: 200_000 },
}
