// Pools that threads share: the descriptors that carry them and their device to other threads, and this thread's
// objects of them. Each pool has one object in a thread.

import { serveWaiting } from '../driver/serve-waiting.js'
import type { SharedDriver } from '../driver/shared-driver.js'
import type { Clocks } from '../order/clocks.js'
import type { SharedOrder } from '../order/shared-order.js'
import type { Stream } from '../order/stream.js'
import { SharedArenaPool } from '../pool/arena/shared-arena-pool.js'
import { checkArenaState, type SharedArenaState } from '../pool/arena/shared-arena-state.js'
import { SharedBlockPool, type SharedBlockState } from '../pool/blocks/shared-block-pool.js'
import { parsePoolExtras, type SharedPoolOptions } from '../pool/caching/options.js'
import { reserveFirst } from '../pool/debug/make-caching-pool.js'
import { SharedHostPool, type SharedHostState } from '../pool/host/shared-host-pool.js'
import { type ReservedWatch, watchFromAfar } from '../pool/reserved-watch.js'
import { newSharedPool } from '../pool/shared/new-shared-pool.js'
import { PoolServerWorker } from '../pool/shared/pool-server-worker.js'
import { SharedPool } from '../pool/shared/shared-pool.js'
import { checkPoolState, type SharedPoolState } from '../pool/shared/shared-state.js'

/** Grows with each change to the descriptor of a device. */
export const SHARED_VERSION = 1

/** The descriptor of a device for other threads. Made by `device.share()`; can be sent in any message. */
export interface SharedDevice {
  /** version of the descriptor; all threads must use the same version of the package */
  readonly version: number
  /** id of the process */
  readonly process: number
  /**
   * how the other thread calls the driver
   * @internal
   */
  readonly driver: SharedDriver
  /** the device's number */
  readonly ordinal: number
  /**
   * the clocks of the device's streams, in shared memory
   * @internal
   */
  readonly order: SharedOrder
}

/** The descriptor of a shared caching pool for other threads. Made by `pool.share()`; can be sent in any message. */
export type SharedPoolDescriptor = SharedPoolState<SharedDevice>
/** The descriptor of a shared block pool for other threads, by `pool.share()`. */
export type SharedBlockDescriptor = SharedBlockState<SharedDevice>
/** The descriptor of a shared host pool for other threads, by `pool.share()`. */
export type SharedHostDescriptor = SharedHostState<SharedDevice>
/** The descriptor of a shared arena for other threads, by `pool.share()`. */
export type SharedArenaDescriptor = SharedArenaState<SharedDevice>

/** Pools with a pool server. */
export type ServedPool = SharedPool<SharedDevice> | SharedHostPool<SharedDevice>

const CREATES = { caching: 'createSharedPool', block: 'createSharedBlockPool', host: 'createSharedHostPool' } as const

interface Closable {
  readonly closed: boolean
  close(): unknown
}

export class SharedPools {
  /** by the pool's number */
  private readonly known = new Map<number, Closable>()
  /** the thread of the pool servers that this thread starts */
  private readonly server = new PoolServerWorker()

  constructor(
    private readonly clocks: Clocks,
    private readonly defaultStream: Stream,
    /** remembers a pool for the device's close */
    private readonly keepOpen: <P extends Closable>(pool: P) => P,
  ) {}

  createCaching(options: SharedPoolOptions, deviceBytes: number, device: SharedDevice): SharedPool<SharedDevice> {
    const state = newSharedPool(this.clocks, options, deviceBytes, device)
    const { initialBytes, watch, warnOnHeld } = parsePoolExtras(options, state.config.maxPoolBytes, deviceBytes)
    const pool = this.create(state, watch)
    pool.warnOnHeld = warnOnHeld
    reserveFirst(pool, initialBytes)
    return pool
  }

  /** Starts the pool server of a new pool, and returns when it runs. */
  create(made: SharedBlockDescriptor): SharedBlockPool<SharedDevice>
  create(made: SharedHostDescriptor): SharedHostPool<SharedDevice>
  create(made: SharedPoolDescriptor, watch: ReservedWatch | null): SharedPool<SharedDevice>
  create(made: SharedPoolDescriptor, watch: ReservedWatch | null = null): ServedPool {
    const call = CREATES[made.kind]
    const state = { ...made, doorbell: this.server.doorbell.buffer }
    // The pool exists when its first message arrives.
    const channel = watch === null ? null : watchFromAfar(watch, () => pool as SharedPool<SharedDevice>)
    const start = this.server.begin(call, state, channel?.theirs)
    const pool = this.newObject(state, true)
    if (pool instanceof SharedPool) pool.changes = channel?.own ?? null
    this.server.await(call, start, serveWaiting)
    this.keep(state, pool)
    try {
      pool.begin()
    } catch (error) {
      this.clocks.context.discard(() => pool.close())
      throw error
    }
    return pool
  }

  createArena(state: SharedArenaDescriptor): SharedArenaPool<SharedDevice> {
    return this.keep(state, new SharedArenaPool(this.clocks, this.defaultStream, state, true, serveWaiting))
  }

  /** This thread's object of a pool that another thread made: the same each time, until it is closed here. */
  attach(state: SharedPoolDescriptor | SharedArenaDescriptor): ServedPool | SharedArenaPool<SharedDevice> {
    if (state.kind !== 'arena') {
      checkPoolState('attachPool', state)
      return this.openObject<ServedPool>(state) ?? this.keep(state, this.newObject(state, false))
    }
    checkArenaState('attachPool', state)
    const known = this.openObject<SharedArenaPool<SharedDevice>>(state)
    if (known !== undefined) return known
    this.clocks.buryStreams() // an arena has no pool server to do this
    return this.keep(state, new SharedArenaPool(this.clocks, this.defaultStream, state, false, serveWaiting))
  }

  /** Ends the thread of the pool servers. */
  end(): void {
    this.server.end()
  }

  private openObject<P extends Closable>({ number }: { readonly number: number }): P | undefined {
    const known = this.known.get(number)
    return known?.closed === false ? (known as P) : undefined
  }

  private keep<P extends Closable>({ number }: { readonly number: number }, pool: P): P {
    this.known.set(number, pool)
    return this.keepOpen(pool)
  }

  private newObject(state: SharedPoolDescriptor, creator: boolean): ServedPool {
    const { clocks, defaultStream } = this
    switch (state.kind) {
      case 'block':
        return new SharedBlockPool(clocks, defaultStream, state as SharedBlockDescriptor, creator, serveWaiting)
      case 'host':
        return new SharedHostPool(clocks, defaultStream, state as SharedHostDescriptor, creator, serveWaiting)
      default:
        return new SharedPool(clocks, defaultStream, state, creator, serveWaiting)
    }
  }
}
