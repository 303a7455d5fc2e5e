// Memory of captured collectives. NCCL registers it for the life of the graph, unless the program has set
// NCCL_GRAPH_REGISTER=0. A launch after the memory has slept would hang, since it lies on other physical memory then.
// So a pool with such memory does not sleep while the graph exists.

import type { Capture } from '../core/order/capture.js'
import { DeviceArray } from '../core/pool/array.js'
import { CachingPool } from '../core/pool/caching/caching-pool.js'
import { GrowableBuffer } from '../core/pool/mapped/growable-buffer.js'
import type { CollectiveMemory } from './communicator-options.js'
import { type Follower, follow, type ObservablePool } from './registrations.js'

/** Keeping a pool awake needs no knowledge of its segments. */
const KEEPS_AWAKE: Follower = { add: () => {}, remove: () => {}, clear: () => {} }

const awake = new WeakMap<Capture, Set<ObservablePool>>()

/** Keeps the pool of `memory` from sleeping until the graph of `capture` is gone. */
export function keepAwake(memory: CollectiveMemory, capture: Capture): void {
  if (process.env.NCCL_GRAPH_REGISTER === '0') return
  const sleeper = sleeperOf(memory)
  if (sleeper === null) return
  const known = awake.get(capture) ?? new Set()
  awake.set(capture, known)
  if (known.has(sleeper)) return
  const stop = follow(sleeper, { ...KEEPS_AWAKE })
  known.add(sleeper)
  capture.holdings.add({ lost: false, asleep: false, release: stop })
}

/** The pool or growable buffer that can sleep, with this memory; null for other memory. */
function sleeperOf(memory: CollectiveMemory): ObservablePool | null {
  const buffer = memory instanceof DeviceArray ? memory.buffer : memory
  if (buffer instanceof GrowableBuffer) return buffer
  const { pool } = buffer.allocation
  return pool instanceof CachingPool ? pool : null
}
