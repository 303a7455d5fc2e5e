// The memory of a caching pool that sleeps. All taken blocks of the heap for large blocks are kept: live ones, slabs
// of small ones, and memory of graphs.

import { PoolError } from '../../../base/errors.js'
import { blockOfPart } from '../../../heap/lent-parts.js'
import { type RecordTable, State } from '../../../heap/records.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import type { Clocks } from '../../../order/clocks.js'
import { HOME_RANGE } from '../../backing/backing.js'
import type { SpareHandles } from '../../backing/pieces/spare-handles.js'
import { registeredError } from '../../backing/segment-watch.js'
import { VirtualBacking } from '../../backing/virtual-backing.js'
import type { Extent } from '../../sleep/host-copies.js'
import { type MappedRange, Sleeper, type SleepingMemory, type Work } from '../../sleep/sleeper.js'
import type { CentralHeap } from '../central/central-heap.js'
import type { PoolConfig } from '../options.js'
import type { StreamCaches } from '../stream-caches.js'

/** A version names a live block by this many generations of records, and by its record. */
const RECORDS = 2 ** 27
const TAGS = 2 ** 26

/** The part of a caching pool that sleep uses. */
export interface SleepingPool {
  readonly clocks: Clocks
  readonly records: RecordTable
  readonly caches: StreamCaches
  readonly central: CentralHeap
  readonly config: PoolConfig
  readonly spares: SpareHandles | null
  addressOfRecord(record: number): number
  /** Throws PoolError in the name of `call` for a closed pool. */
  checkOpen(call: string): void
  /** Refuses uses of the memory from now on, or no longer. */
  refuseUses(refuses: boolean): void
  /** Runs a change of the heaps, which a timeout may cut short. */
  change(call: string, work: () => void): void
}

/** Lets a pool sleep. Throws PoolError in the name of `call` if its options do not allow that. */
export function sleeperOf(call: string, pool: SleepingPool): Sleeper {
  const { backing } = pool.central
  if (pool.config.debug !== null) {
    throw new PoolError(`${call}: a pool in debug mode looks at its memory at each free; make it without debug`)
  }
  if (!(backing instanceof VirtualBacking)) {
    throw new PoolError(
      `${call}: memory of backing '${backing.kind}' cannot be mapped again; make the pool with 'virtual'`,
    )
  }
  const sleeper = new Sleeper(new PoolMemory(pool, backing))
  backing.isCopied = () => sleeper.isChanging
  return sleeper
}

class PoolMemory implements SleepingMemory {
  readonly kind = 'pool'
  readonly clocks: Clocks

  constructor(
    private readonly pool: SleepingPool,
    private readonly backing: VirtualBacking,
  ) {
    this.clocks = pool.clocks
  }

  check(call: 'sleep' | 'wake'): void {
    this.pool.checkOpen(call)
    if (call === 'wake') return
    if (this.backing.watch.isObserved) {
      throw registeredError()
    }
    if (this.pool.central.arenas.isCapturing) {
      throw new PoolError(
        'sleep: work that is being captured uses the pool; end the capture first',
        'ERR_STREAM_CAPTURED',
      )
    }
  }

  guard(isAsleep: boolean, hasCopies: boolean): void {
    this.pool.refuseUses(isAsleep)
    if (isAsleep || hasCopies) this.markLive()
    else this.unmarkLive()
  }

  workOfPeers(): readonly Work[] {
    const { arenas, deferred } = this.pool.central
    return [...deferred.workOfPeers(), ...arenas.groups.workOfPeers()]
  }

  finishPeers(): void {
    for (const peer of this.backing.access.peers) peer.finishWork('sleep')
  }

  extents(): readonly Extent[] {
    const { pool, backing } = this
    pool.change('sleep', () => {
      pool.central.gather()
      if (backing.reservedBytes === 0 && pool.spares === null) backing.forgetIdle()
    })
    return [...this.takenBlocks(), ...pool.central.arenas.groups.takenInRanges()].map(record => ({
      ptr: pool.addressOfRecord(record),
      bytes: pool.records.unitsOf(record) * UNIT_BYTES,
      version: this.versionOf(record),
    }))
  }

  unmap(): void {
    this.pool.change('sleep', () => {
      if (this.pool.spares === null) this.pool.central.trimTo(0)
      this.pool.central.arenas.groups.loseContents() // also if the driver takes only a part back
      this.backing.suspend(this.pool.spares)
    })
  }

  get reservedBytes(): number {
    return this.backing.reservedBytes
  }

  get asleepBytes(): number {
    return this.backing.suspendedBytes
  }

  create(): void {
    this.backing.createAgain(this.pool.spares)
  }

  map(): Iterable<MappedRange> {
    return this.backing.mapAgain()
  }

  get hasPeers(): boolean {
    return this.backing.access.peers.length > 0
  }

  /** The records of the blocks of the heap for large blocks that are neither free nor cached. */
  private takenBlocks(): number[] {
    const { records, caches, central } = this.pool
    const taken = new Set<number>()
    for (let record = central.large.firstRecords.get(HOME_RANGE)!; record !== 0; record = records.nextOf(record)) {
      const state = records.state(record)
      if (state === State.free || state === State.absent) continue
      const block = state === State.lent ? blockOfPart(records, record) || record : record
      if (!(records.isLive(block) && caches.state(block) === State.cached)) taken.add(block)
    }
    return [...taken]
  }

  private versionOf(record: number): number {
    const { records, caches } = this.pool
    if (!records.isLive(record) || !caches.isLive(record)) return -1
    return ((caches.blockOf(record).tag >> 3) % TAGS) * RECORDS + record
  }

  /** Marks live blocks as shared, so that each free takes the slow path, which tells the sleeper. */
  private markLive(): void {
    this.eachLive(record => {
      this.pool.caches.blockOf(record).state = State.shared
    })
  }

  private unmarkLive(): void {
    const { caches, central } = this.pool
    this.eachLive(record => {
      if (!central.deferred.isAnnounced(record) && !central.arenas.isCaptured(record)) {
        caches.blockOf(record).state = State.live
      }
    })
  }

  private eachLive(visit: (record: number) => void): void {
    const { records, caches } = this.pool
    for (const record of records.taken()) if (caches.isLive(record)) visit(record)
  }
}
