// Shared pools whose pool server has found memory before the threads begin, and which ask it for nothing then.

import { assert } from '../../../src/core/base/assert.js'
import { Context } from '../../../src/core/driver/context.js'
import { SimulatedDriver } from '../../../src/core/driver/simulated/simulated-driver.js'
import { Clocks } from '../../../src/core/order/clocks.js'
import { Stream } from '../../../src/core/order/stream.js'
import type { DeviceBuffer } from '../../../src/core/pool/buffer.js'
import { newSharedPool } from '../../../src/core/pool/shared/new-shared-pool.js'
import { PoolServer } from '../../../src/core/pool/shared/pool-server.js'
import { PoolServerGroup } from '../../../src/core/pool/shared/pool-server-group.js'
import { SharedPool } from '../../../src/core/pool/shared/shared-pool.js'
import { SharedState } from '../../../src/core/pool/shared/shared-state.js'
import { UnlockedDriver } from '../../../src/core/pool/shared/unlocked-driver.js'
import { Doorbell } from '../../../src/core/threads/doorbell.js'
import type { Scenario } from '../stage.js'

export const BYTES = 1000
const MiB = 2 ** 20

/** The settings that differ from a usual pool's. */
interface Settings {
  readonly backing?: 'segments'
  readonly maxPoolBytes?: number
  /** threads make barriers themselves */
  readonly isFenced?: boolean
}

/** A pool on a simulated device. Its pool server answers in the asking thread, or in a thread that runs `keep`. */
export function newPool({ isFenced = false, ...options }: Settings = {}) {
  const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
  driver.cuInit()
  const context = Context.open(driver, 0)
  const clocks = new Clocks(context)
  const order = clocks.share()
  const usual = newSharedPool(clocks, { ...options }, driver.cuDeviceTotalMem(context.device), null)
  const shared = { ...usual, room: { ...usual.room, isFenced } }
  /** by address, the thread that holds a block which begins there */
  const holders = new Map<number, number>()
  const outside = new UnlockedDriver(driver)
  const keeps = new Clocks(Context.open(outside.driver, 0), order)
  const newServer = () =>
    new PoolServer(new SharedState(shared, keeps), keeps, shared.config, outside, () => keeps.close())
  const attach = (isCreator = false, meanwhile = () => {}) => {
    const own = new Clocks(Context.open(driver, 0), order)
    return new SharedPool(own, new Stream(own, 0, false), shared, isCreator, meanwhile)
  }
  return {
    attach,
    /** for a thread that works on the state as a pool server does */
    newState: () => new SharedState(shared, keeps),
    newServer,
    keep: () => {
      const doorbell = new Doorbell(shared.doorbell)
      const servers = new PoolServerGroup(() => {})
      servers.add(newServer())
      while (servers.count > 0) {
        const { rings } = doorbell
        const restMs = servers.serve()
        if (restMs > 0 && servers.count > 0) doorbell.sleep(rings, restMs)
      }
    },
    take: (buffer: DeviceBuffer, thread: number) => {
      const holder = holders.get(buffer.ptr)
      assert(holder === undefined, `thread ${thread} gets what thread ${holder} holds`)
      holders.set(buffer.ptr, thread)
    },
    give: (buffer: DeviceBuffer) => holders.delete(buffer.ptr),
    giveAll: (thread: number) => {
      for (const [ptr, holder] of holders) if (holder === thread) holders.delete(ptr)
    },
  }
}

/**
 * The same with some buffers of the pool's creator. The pool server runs in the creator's thread while the creator
 * waits for it; with `serving`, in a thread of the scenario.
 */
export function servedPool(count: number, settings: Settings = {}) {
  const made = newPool(settings)
  const server = made.newServer()
  const serving = { isThread: false }
  const meanwhile = () => {
    if (!serving.isThread) server.serve()
  }
  const pool = made.attach(true, meanwhile)
  const held = Array.from({ length: count }, () => pool.allocate(BYTES))
  return { ...made, server, serving, meanwhile, pool, held }
}

/** Gives everything back, and asserts that all views agree. */
export function checkAll({ pool, server }: Pick<ReturnType<typeof servedPool>, 'pool' | 'server'>): void {
  server.sweep()
  for (const { thread, alive } of pool.threads()) if (!alive) pool.reclaim(thread)
  pool.reclaim(0)
  pool.check()
  pool.processDeferred()
  pool.trimTo(0)
  const { liveBuffers, cachedBytes, reservedBytes } = pool.stats()
  const left = `${liveBuffers} buffers, ${cachedBytes} and ${reservedBytes} bytes are left`
  assert(liveBuffers === 0 && cachedBytes === 0 && reservedBytes === 0, left)
}

/** The result of a call; null if it throws. */
export function tried<R>(call: () => R): R | null {
  try {
    return call()
  } catch {
    return null
  }
}

export const scenarios: Record<string, Scenario> = {
  'a buffer is adopted by one thread': {
    isLarge: true,
    begin: () => {
      const made = servedPool(1)
      const [buffer] = made.held
      const sent = buffer.transfer()
      const stale = { ...sent, tag: sent.tag - 2 ** 23 }
      let adopted = 0
      const adopt = () => {
        const pool = made.attach()
        assert(tried(() => pool.adopt(stale)) === null, 'a handle of another generation is refused')
        const mine = tried(() => pool.adopt(sent))
        if (mine === null) return
        adopted++
        assert(!mine.freed, 'it is live')
        mine.free()
      }
      return {
        threads: [adopt, adopt],
        end: () => {
          assert(adopted === 1, `${adopted} threads adopted it`)
          checkAll(made)
        },
      }
    },
  },
  'two threads meet two streams': {
    begin: () => {
      const { newState } = newPool()
      const [one, other] = [newState(), newState()]
      return {
        threads: [() => one.caches.includeSlot(3), () => other.caches.includeSlot(5)],
        end: () => assert(one.caches.slotLimit === 6, 'both streams are known'),
      }
    },
  },
}
