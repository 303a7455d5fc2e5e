// A small simulated device built from the layers below, for the tests of this folder. Work runs as soon as its
// dependencies allow, so that a test holds back exactly the work that must be pending.

import assert from 'node:assert/strict'
import { MiB } from '../base/bytes.js'
import { CudaError } from '../base/errors.js'
import { Context } from '../driver/context.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Clocks } from '../order/clocks.js'
import { Stream } from '../order/stream.js'
import type { AnyArenaOptions, ArenaOptions } from './arena/arena-options.js'
import { ArenaPool } from './arena/arena-pool.js'
import { newSharedArena, SharedArenaPool } from './arena/shared-arena-pool.js'
import type { BlockOptions } from './blocks/block-options.js'
import { BlockPool } from './blocks/block-pool.js'
import { newSharedBlocks, SharedBlockPool } from './blocks/shared-block-pool.js'
import type { DeviceBuffer } from './buffer.js'
import type { CachingPool } from './caching/caching-pool.js'
import { type PoolOptions, parsePoolExtras, type SharedPoolOptions } from './caching/options.js'
import type { DebugPool } from './debug/debug-pool.js'
import { makeCachingPool, type WithDebug } from './debug/make-caching-pool.js'
import { DriverPool } from './driver-owned/driver-pool.js'
import type { DriverPoolOptions } from './driver-owned/driver-pool-options.js'
import { ImportedPool } from './driver-owned/imported-pool.js'
import { PlainPool } from './driver-owned/plain-pool.js'
import type { HostPoolOptions } from './host/host-options.js'
import { HostPool } from './host/host-pool.js'
import { newSharedHost, SharedHostPool } from './host/shared-host-pool.js'
import type { PassOptions } from './mapped/descriptor-passing.js'
import { GrowableBuffer, type GrowableOptions } from './mapped/growable-buffer.js'
import { InterprocessBuffer, type OpenOptions } from './mapped/interprocess-buffer.js'
import { newSharedPool } from './shared/new-shared-pool.js'
import { PoolServer } from './shared/pool-server.js'
import { SharedPool } from './shared/shared-pool.js'
import { type SharedPoolState, type SharedRoom, SharedState } from './shared/shared-state.js'
import { UnlockedDriver } from './shared/unlocked-driver.js'

/** The pool that a buffer's memory comes from, behind all wrappers. */
export function sourceOf({ allocation }: DeviceBuffer): unknown {
  return allocation.pool
}

/** A simulated device of 64 MiB, or with other options, or a further device of a driver that has several. */
export class TestDevice {
  readonly driver: SimulatedDriver
  readonly context: Context
  readonly clocks: Clocks
  readonly defaultStream: Stream
  readonly totalBytes: number

  constructor(options: SimulatedOptions | SimulatedDriver = {}, ordinal = 0) {
    this.driver =
      options instanceof SimulatedDriver
        ? options
        : new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager', ...options })
    this.driver.cuInit()
    this.context = Context.open(this.driver, ordinal)
    this.totalBytes = this.driver.cuDeviceTotalMem(this.context.device)
    this.clocks = new Clocks(this.context)
    this.defaultStream = new Stream(this.clocks, 0, false)
  }

  get memoryLimit(): number {
    return this.totalBytes
  }

  createStream(): Stream {
    return Stream.create(this.clocks)
  }

  createPool(options: WithDebug): DebugPool
  createPool(options?: PoolOptions): CachingPool
  createPool(options: PoolOptions = {}): CachingPool {
    return makeCachingPool(this.clocks, this.defaultStream, options, this.totalBytes)
  }

  /** A pool that threads share. Its pool server runs in this thread, and answers while a request waits. */
  createSharedPool(
    options: SharedPoolOptions = {},
    /** a smaller layout than the default */
    less: Partial<SharedRoom> = {},
  ): { pool: SharedPool; server: PoolServer; attach: (meanwhile?: () => void) => SharedPool } {
    const whole = newSharedPool(this.clocks, options, this.totalBytes, null)
    const state = { ...whole, room: { ...whole.room, ...less } }
    const { watch } = parsePoolExtras(options, whole.config.maxPoolBytes, this.totalBytes)
    const server = this.serverOf(
      state,
      watch === null ? null : reservedBytes => watch.lookAtReserved(pool, reservedBytes),
    )
    const front = (creates: boolean, meanwhile = () => serve(server)) =>
      new SharedPool(this.clocks, this.defaultStream, state, creates, meanwhile)
    const pool = front(true)
    return { pool, server, attach: meanwhile => front(false, meanwhile) }
  }

  /** The same for a block pool. */
  createSharedBlocks(options: BlockOptions): { pool: SharedBlockPool; attach: () => SharedBlockPool } {
    const state = newSharedBlocks(this.clocks, options, null)
    const server = this.serverOf(state)
    const front = (creates: boolean) =>
      new SharedBlockPool(this.clocks, this.defaultStream, state, creates, () => serve(server))
    const pool = front(true)
    try {
      pool.begin()
    } catch (error) {
      this.context.discard(() => pool.close())
      throw error
    }
    return { pool, attach: () => front(false) }
  }

  /** Pinned memory that threads share. */
  createSharedHost(options: HostPoolOptions = {}): { pool: SharedHostPool; attach: () => SharedHostPool } {
    const state = newSharedHost(this.clocks, options, null)
    const server = this.serverOf(state)
    const front = (creates: boolean) =>
      new SharedHostPool(this.clocks, this.defaultStream, state, creates, () => serve(server))
    return { pool: front(true), attach: () => front(false) }
  }

  /** An arena that threads share. */
  createSharedArena(options: ArenaOptions): { pool: SharedArenaPool; attach: () => SharedArenaPool } {
    const state = newSharedArena(this.clocks, options, null)
    const front = (creates: boolean) => new SharedArenaPool(this.clocks, this.defaultStream, state, creates, () => {})
    return { pool: front(true), attach: () => front(false) }
  }

  /** Runs `action` in the middle of each growth of a pool server; the returned function counts how often it ran. */
  duringGrowth(action: () => void): () => number {
    const { driver } = this
    const exchange = driver.cuThreadExchangeStreamCaptureMode.bind(driver)
    let count = 0
    driver.cuThreadExchangeStreamCaptureMode = mode => {
      action()
      count++
      return exchange(mode)
    }
    return () => count
  }

  private serverOf(state: SharedPoolState, onChange: ((reservedBytes: number) => void) | null = null): PoolServer {
    const outside = new UnlockedDriver(this.driver)
    const context = Context.open(outside.driver, this.context.ordinal)
    let clocks: Clocks | null = null
    try {
      clocks = new Clocks(context, this.clocks.share())
      const shared = new SharedState(state, clocks)
      const onClose = () => {
        clocks!.close()
        context.destroyRest()
        context.release()
      }
      return new PoolServer(shared, clocks, state.config, outside, onClose, onChange)
    } catch (error) {
      context.discard(() => {
        clocks?.close()
        context.destroyRest()
      })
      context.release()
      throw error
    }
  }

  createArenaPool(options: AnyArenaOptions): ArenaPool {
    return new ArenaPool(this.clocks, this.defaultStream, options)
  }

  createBlockPool(options: BlockOptions): BlockPool {
    return new BlockPool(this.clocks, this.defaultStream, options)
  }

  createPlainPool(): PlainPool {
    return new PlainPool(this.clocks, this.defaultStream)
  }

  createHostPool(options: HostPoolOptions = {}): HostPool {
    return HostPool.open(this.clocks, this.defaultStream, options)
  }

  defaultDriverPool(): DriverPool {
    return new DriverPool(this.clocks, this.defaultStream)
  }

  createDriverPool(options: DriverPoolOptions = {}): DriverPool {
    return new DriverPool(this.clocks, this.defaultStream, options)
  }

  createInterprocessBuffer(bytes: number, stream = this.defaultStream): InterprocessBuffer {
    return InterprocessBuffer.create(this.clocks, stream, bytes)
  }

  importBuffer(path: string, options: OpenOptions = {}): Promise<InterprocessBuffer> {
    return InterprocessBuffer.open(this.clocks, this.defaultStream, path, options)
  }

  importPool(path: string, options: PassOptions = {}): Promise<ImportedPool> {
    return ImportedPool.open(this.clocks, this.defaultStream, path, options)
  }

  createGrowableBuffer(options: GrowableOptions): GrowableBuffer {
    return GrowableBuffer.create(this.clocks, this.defaultStream, options)
  }

  /** Holds back work submitted to `stream` from now on, until the returned function is called or the host waits. */
  hold(stream: Stream): () => void {
    const driver = this.context.activate() as SimulatedDriver
    const ticket = driver.holdOperation(stream.handle)
    return () => driver.releaseThrough(stream.handle, ticket)
  }

  /** How often a driver function was called so far, on all devices. */
  calls(name: string): number {
    return this.driver.calls.get(name) ?? 0
  }

  /** How many driver calls were made so far, on all devices. */
  get callCount(): number {
    return [...this.driver.calls.values()].reduce((sum, count) => sum + count, 0)
  }

  freeBytes(): number {
    return this.context.activate().cuMemGetInfo().freeBytes
  }
}

/** A round of a pool server. Instead of polling, the host waits for the marks, so that held work continues. */
export function serve(server: PoolServer): void {
  server.serve()
  for (const { marks } of server['waitingRequests']['requests'].values()) {
    try {
      for (const { slot, stamp } of marks) server['clocks'].watcher.waitFor(slot, stamp)
    } catch (error) {
      if (!(error instanceof CudaError)) throw error // ignores a refused wait: the next round asks again
    }
  }
}

/**
 * Refuses each driver call of `work` in turn, with each of `codes`, once or from then on. Then the driver refuses
 * nothing, and `after` runs. `start` makes what both need, anew each time. Returns the number of calls.
 */
export async function refuseEach<S extends { readonly device: TestDevice }>(
  start: () => S | Promise<S>,
  work: (subject: S) => unknown,
  after: (subject: S) => unknown,
  { codes = [999], onwards = [false, true] }: { readonly codes?: readonly number[]; readonly onwards?: boolean[] } = {},
): Promise<number> {
  let nth = 1
  for (let reached = true; reached; nth++) {
    for (const [code, on] of codes.flatMap(code => onwards.map(on => [code, on] as const))) {
      const subject = await start()
      const { device } = subject
      const before = device.callCount
      device.driver.failCall({ call: '*', nth, code, onwards: on })
      try {
        await work(subject)
        reached = device.callCount - before >= nth
        device.driver.clearFaults()
        await after(subject)
      } catch (error) {
        throw new Error(`call ${nth} was refused with ${code}${on ? ', and so were later ones' : ''}`, { cause: error })
      }
    }
  }
  return nth - 2
}

/** Two devices of one driver. */
export function twoDevices(options: SimulatedOptions = {}): [TestDevice, TestDevice] {
  const first = new TestDevice({ devices: 2, ...options })
  return [first, new TestDevice(first.driver, 1)]
}

/**
 * The pool's own check, and a check of its counters: live, cached, pending and free bytes add up to the reserved
 * bytes, except `spareBytes` that a failed or smaller growth left unmapped.
 */
export function assertConsistent(pool: CachingPool, spareBytes = 0): void {
  pool.check()
  const stats = pool.stats()
  const { ranges } = pool.snapshot()
  const sums = { live: 0, requested: 0, buffers: 0, cached: 0, pending: 0, captured: 0, free: 0 }
  for (const block of ranges.flatMap(range => range.blocks)) {
    if (block.state === 'live') {
      sums.live += block.bytes
      sums.requested += block.requestedBytes!
      sums.buffers++
    } else if (block.state === 'cached') sums.cached += block.bytes
    else if (block.state === 'pending') sums.pending += block.bytes
    else if (block.state === 'captured') sums.captured += block.bytes
    else if (block.state === 'free') sums.free += block.bytes
  }
  const { live, requested, buffers, cached, pending, captured, free } = sums
  assert.deepEqual(
    {
      liveBytes: stats.liveBytes,
      requestedBytes: stats.requestedBytes,
      liveBuffers: stats.liveBuffers,
      cachedBytes: stats.cachedBytes,
      reservedBytes: stats.reservedBytes,
      balance: stats.allocations - stats.frees,
    },
    {
      liveBytes: live,
      requestedBytes: requested,
      liveBuffers: buffers,
      cachedBytes: cached,
      reservedBytes: live + cached + pending + captured + free + spareBytes,
      balance: buffers,
    },
  )
  assert.ok(stats.pendingBytes >= pending && stats.pendingBytes <= pending + free, 'pending bytes are among the freed')
  assert.ok(stats.peakLiveBytes >= live, 'peaks are at least what is')
  assert.ok(stats.peakReservedBytes >= stats.reservedBytes, 'the peak of what is reserved is at least what is')
  const held = pool.live()
  assert.equal(held.length, buffers)
  const heldBytes = held.reduce((sum, block) => sum + block.byteLength, 0)
  assert.equal(heldBytes, requested)
}

/** Whether all bytes are `value`: the first is, and each is as the next. Needs no second array of that size. */
export function isFilled(bytes: Uint8Array, value: number): boolean {
  return bytes[0] === value && Buffer.compare(bytes.subarray(1), bytes.subarray(0, -1)) === 0
}

/** Runs a step that may throw a CudaError, or one of `kinds`; returns whether it did. Other errors are thrown on. */
export function isRefused(step: () => unknown, ...kinds: readonly (new (...args: never) => Error)[]): boolean {
  try {
    step()
    return false
  } catch (error) {
    if ([CudaError, ...kinds].some(kind => error instanceof kind)) return true
    throw error
  }
}
