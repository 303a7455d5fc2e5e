// Shared pools whose server joins free memory of several places in a view, while other threads die.

import { assert } from '../../../src/core/base/assert.js'
import type { DeviceBuffer } from '../../../src/core/pool/buffer.js'
import { type Cast, isOverNow, mayDie, type Scenario } from '../stage.js'
import { checkAll, servedPool } from './shared-pool.js'

const KiB = 1024
const MiB = 1024 * KiB

/**
 * A full pool with free memory in gaps of 3 MiB. A request of 5 MiB needs two of them. One thread dies: while the pool
 * server joins gaps for it, or with the lock while the server joins gaps for the other thread.
 */
function joining(): Cast {
  const made = servedPool(0, { maxPoolBytes: 16 * MiB })
  const { pool, server, serving, take, give } = made
  const held: DeviceBuffer[] = []
  const gaps: DeviceBuffer[] = []
  for (let turn = 0; turn < 4; turn++) {
    held.push(pool.allocate(MiB))
    gaps.push(pool.allocate(3 * MiB))
  }
  for (const buffer of held) take(buffer, 2)
  for (const gap of gaps) gap.free()
  pool.processDeferred()
  const before = server['central'].backing.baseChanges
  serving.isThread = true
  const die = () => {
    const own = made.attach()
    own.tryAllocate(5 * MiB)?.free()
    // Of sizes that no cache has, so that it takes the lock for each.
    for (let step = 0; step < 4; step++) own.tryAllocate(MiB + step * KiB)?.free()
    own.tryAllocate(5 * MiB)
  }
  let isKept = true
  const keep = () => {
    while (isKept || !isOverNow(0)) server.serve()
    serving.isThread = false
    assert(server['central'].backing.baseChanges > before, 'memory was joined in a view')
  }
  const work = () => {
    for (const bytes of [5 * MiB, MiB, 5 * MiB]) {
      const buffer = pool.tryAllocate(bytes)
      if (buffer === null) continue
      take(buffer, 2)
      give(buffer)
      buffer.free()
    }
    isKept = false
  }
  const end = () => {
    server.sweep()
    for (const { thread, alive } of pool.threads()) if (!alive) pool.reclaim(thread)
    pool.processDeferred()
    pool.check()
    const again = pool.allocate(5 * MiB)
    take(again, 2)
    for (const buffer of [again, ...held]) {
      give(buffer)
      buffer.free()
    }
    checkAll(made)
  }
  return { threads: [() => mayDie(die), keep, work], end }
}

export const scenarios: Record<string, Scenario> = {
  'a thread dies anywhere beside a join in a view': { isLarge: true, begin: joining, mostSteps: 500_000 },
}
