// Threads that attach pools of several kinds, for shared-kinds.test.ts and shared-kinds.storm.test.ts.

import { parentPort, workerData } from 'node:worker_threads'
import { KiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { attachDevice, attachPool } from '../src/core/device/attach.js'
import type {
  SharedArenaDescriptor,
  SharedBlockDescriptor,
  SharedHostDescriptor,
  SharedPoolDescriptor,
} from '../src/core/device/shared-pools.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { HostBuffer } from '../src/core/pool/host/host-buffer.js'
import { limited } from '../src/core/pool/wrappers/limited.js'
import { statistics } from '../src/core/pool/wrappers/statistics.js'
import { tagged } from '../src/core/pool/wrappers/tagged.js'

/** Of each kind, a buffer of 1000 bytes that are all `value`, for the other thread. */
function fillEach(
  block: SharedBlockDescriptor,
  arena: SharedArenaDescriptor,
  host: SharedHostDescriptor,
  value: number,
) {
  const pools = [attachPool(block), attachPool(arena)] as const
  const hostPool = attachPool(host)
  const sent = pools.map(pool => {
    const buffer = pool.allocate(1000)
    buffer.fill(value)
    buffer.stream.synchronize()
    return buffer.transfer()
  })
  const pinned = hostPool.allocate(1000)
  pinned.bytes.fill(value)
  sent.push(pinned.transfer())
  parentPort!.once('message', () => {
    parentPort!.postMessage([...pools, hostPool].map(pool => pool.close()))
  })
  return sent
}

/** Wraps a pool in this thread, and returns facts about its buffers. */
function wrap(shared: SharedPoolDescriptor | SharedBlockDescriptor | SharedArenaDescriptor) {
  const pool = attachPool(shared as SharedPoolDescriptor)
  const counted = statistics(tagged(limited(pool, 8 * KiB)))
  const buffer = counted.allocate(5 * KiB)
  const beside = pool.allocate(5 * KiB) // not counted by the limit
  beside.free()
  const facts = {
    isOurs: buffer.pool === counted && buffer.allocation.pool === pool && beside.pool === pool,
    overLimit: counted.tryAllocate(5 * KiB) === null,
    live: counted.stats().liveBuffers,
  }
  buffer.free()
  return { ...facts, freed: buffer.freed, left: counted.stats().liveBuffers }
}

/**
 * Serves two requests from an arena of this thread on a buffer of a shared pool, and returns the buffer, whose first
 * `count` bytes are `value`.
 */
function serveFromArena(shared: SharedPoolDescriptor, count: number, value: number) {
  const pool = attachPool(shared)
  const region = pool.allocate(64 * KiB)
  const arena = attachDevice(shared.device).createArenaPool({ region })
  for (const written of [255 - value, value]) {
    using buffer = arena.allocate(count)
    if (buffer.ptr !== region.ptr) throw new Error('the arena did not begin anew')
    buffer.fill(written)
    arena.reset()
  }
  arena.close()
  region.stream.synchronize()
  const sent = region.transfer()
  parentPort!.once('message', () => parentPort!.postMessage(pool.close()))
  return sent
}

export const tasks = { fillEach, wrap, serveFromArena }

/** The memory that the threads of a storm share. */
export interface KindStorm {
  readonly pool: SharedBlockDescriptor | SharedArenaDescriptor | SharedHostDescriptor
  /** for blocks: the owner of each block; for an arena: by unit, the latest epoch in which a thread had it */
  readonly map: Int32Array
  /** for blocks and arenas: the lowest address, at which their numbers start */
  readonly base: number
  /** 0: steps taken by all; 1: resets */
  readonly progress: Int32Array
}

/** Takes and frees blocks for ever. It is an error if two threads have a block. */
function stormBlocks({ pool: shared, map, base, progress }: KindStorm, seed: number): void {
  const random = new Random(seed)
  const pool = attachPool(shared as SharedBlockDescriptor)
  const device = attachDevice(shared.device)
  const streams = [device.defaultStream, device.createStream()]
  const held: DeviceBuffer[] = []
  parentPort!.postMessage(pool.thread)
  const move = ({ ptr }: DeviceBuffer, from: number, to: number) => {
    const before = Atomics.exchange(map, (ptr - base) / pool.blockBytes, to)
    if (before !== from) throw new Error(`the block at ${ptr} is ${before}'s, not ${from}'s`)
  }
  for (;;) {
    if (random.below(2) === 0 && held.length < 30) {
      const buffer = pool.tryAllocate(1 + random.below(pool.blockBytes), streams[random.below(2)])
      if (buffer !== null) {
        move(buffer, 0, pool.thread)
        held.push(buffer)
      }
    } else if (held.length > 0) {
      const [buffer] = held.splice(random.below(held.length), 1)
      move(buffer, pool.thread, 0)
      if (random.below(4) === 0) buffer.free(streams[random.below(2)])
      else buffer.free()
    }
    Atomics.add(progress, 0, 1)
  }
}

/**
 * Takes memory of an arena for ever, and resets it now and then. It is an error if two threads had a unit in one
 * epoch.
 */
function stormArena({ pool: shared, map, base, progress }: KindStorm, seed: number): void {
  const random = new Random(seed)
  const pool = attachPool(shared as SharedArenaDescriptor)
  const device = attachDevice(shared.device)
  const streams = [device.defaultStream, device.createStream()]
  parentPort!.postMessage(pool.thread)
  for (;;) {
    const stream = streams[random.below(2)]
    const buffer = pool.tryAllocate(random.logUniform(1, 20 * KiB), stream, 2 ** random.below(11))
    if (buffer === null || random.below(100) === 0) {
      pool.reset(stream)
      Atomics.add(progress, 1, 1)
    } else {
      const epoch = pool.drops
      let [first, bytes] = [0, 0]
      try {
        first = (buffer.ptr - base) / 256
        bytes = buffer.byteLength
      } catch {} // another thread has reset it
      if (pool.drops !== epoch) continue // the buffer is of an epoch before
      for (let unit = first; unit < first + Math.ceil(bytes / 256); unit++) {
        const before = Atomics.exchange(map, unit, epoch)
        if (before === epoch) throw new Error(`unit ${unit} was handed out twice in epoch ${epoch}`)
        if (before > epoch) Atomics.compareExchange(map, unit, epoch, before)
      }
      try {
        if (random.below(2) === 0) buffer[Symbol.dispose]()
      } catch {} // as above
    }
    Atomics.add(progress, 0, 1)
  }
}

/**
 * Takes, fills, copies and frees pinned memory for ever. It is an error if a second thread writes the memory
 * meanwhile.
 */
function stormHost({ pool: shared, progress }: KindStorm, seed: number): void {
  const random = new Random(seed)
  const pool = attachPool(shared as SharedHostDescriptor)
  const device = attachDevice(shared.device)
  const stream = device.createStream()
  const target = device.createPlainPool().allocate(64 * KiB, stream)
  const held: { host: HostBuffer; stamp: number }[] = []
  parentPort!.postMessage(pool.thread)
  for (;;) {
    if (random.below(2) === 0 && held.length < 12) {
      const host = pool.tryAllocate(random.logUniform(256, 64 * KiB))
      if (host !== null) {
        const stamp = random.below(256)
        host.bytes.fill(stamp)
        held.push({ host, stamp })
      }
    } else if (held.length > 0) {
      const [{ host, stamp }] = held.splice(random.below(held.length), 1)
      if (!Buffer.alloc(host.bytes.length, stamp).equals(host.bytes)) throw new Error('memory was handed out twice')
      if (random.below(4) === 0) host.copyTo(target)
      host.free()
    }
    Atomics.add(progress, 0, 1)
  }
}

const storms = { block: stormBlocks, arena: stormArena, host: stormHost }

if (workerData?.kindTask) {
  const { kindTask, args } = workerData as { kindTask: keyof typeof tasks; args: unknown[] }
  parentPort!.postMessage((tasks[kindTask] as (...args: unknown[]) => unknown)(...args))
}
if (workerData?.kindStorm) {
  const { kindStorm, seed } = workerData as { kindStorm: KindStorm; seed: number }
  storms[kindStorm.pool.kind](kindStorm, seed)
}
