// The memory of random programs: pools on each rank that grow, shrink and are limited, and arrays in them with a shadow
// of their contents, on several streams with work that is held back.

import { MiB } from '../core/base/bytes.js'
import { Random } from '../core/base/random.js'
import { Event } from '../core/order/event.js'
import type { Stream } from '../core/order/stream.js'
import type { DeviceArray } from '../core/pool/array.js'
import type { CachingPool } from '../core/pool/caching/caching-pool.js'
import { CELLS, Family } from './shadow.fixture.js'
import { TestWorld } from './world.fixture.js'

const STREAMS = 3
const CAPACITY = 96 * MiB
const MOST_FAMILIES = 8
const BIG_ELEMENTS = MiB // 4 MiB of numbers

export abstract class RandomMemory {
  /** how often each thing happened */
  readonly taken = new Map<string, number>()
  protected readonly random: Random
  protected readonly world: TestWorld
  protected readonly pools: readonly { readonly registrable: CachingPool; readonly virtual: CachingPool }[]
  protected readonly families: Family[] = []
  /** by rank */
  private readonly streams: Stream[][]
  private readonly holds: { readonly rank: number; readonly stream: Stream; readonly ticket: number }[] = []

  constructor(
    readonly seed: number,
    protected readonly ranks: number,
  ) {
    this.random = new Random(seed)
    const progress = seed % 3 === 0 ? 'eager' : 'seeded'
    this.world = TestWorld.open({ devices: ranks, capacityBytes: CAPACITY, seed, progress, version: 23000 })
    this.pools = this.world.devices.map(device => ({
      registrable: device.createPool({ backing: 'registrable' }),
      virtual: device.createPool({ backing: 'virtual' }),
    }))
    this.streams = this.world.devices.map(device => [
      device.defaultStream,
      ...Array.from({ length: STREAMS - 1 }, () => device.createStream()),
    ])
  }

  protected note(what: string): void {
    this.taken.set(what, (this.taken.get(what) ?? 0) + 1)
  }

  protected clearFaults(): void {
    this.world.nccl.clearFaults()
    this.world.driver.clearFaults()
  }

  protected allocate(): void {
    if (this.families.length === MOST_FAMILIES) return
    const isAsleep = this.pools.some(({ virtual }) => virtual.asleep)
    const kind = isAsleep || this.random.below(2) === 0 ? 'registrable' : 'virtual'
    const isBig = this.random.below(3) === 0
    const length = CELLS + (isBig ? this.random.below(BIG_ELEMENTS) : this.random.below(500))
    this.make(kind, length, rank => this.pools[rank][kind].allocateArray(Uint32Array, length, this.anyStream(rank)))
  }

  /** Makes an array on each rank, or on none. */
  protected make(home: unknown, length: number, allocate: (rank: number) => DeviceArray<Uint32Array>): void {
    const arrays: DeviceArray<Uint32Array>[] = []
    try {
      for (let rank = 0; rank < this.ranks; rank++) arrays.push(allocate(rank))
    } catch (error) {
      this.clearFaults()
      for (const array of arrays) array.free()
      throw error
    }
    const offset = [0, length - CELLS][this.random.below(2)]
    const family = new Family(home, arrays, offset)
    this.families.push(family)
    for (let rank = 0; rank < this.ranks; rank++) family.write(rank, this.numbers())
  }

  protected free(): void {
    const family = this.anyFamily(({ graphs }) => graphs === 0)
    if (family !== null) this.release(family)
  }

  protected release(family: Family): void {
    this.families.splice(this.families.indexOf(family), 1)
    try {
      for (const [rank, array] of family.arrays.entries()) {
        const stream = this.anyStream(rank)
        const isElsewhere = this.random.below(3) === 0 && !this.isAsleep(family)
        if (isElsewhere) signal(array.stream, stream)
        array.free(isElsewhere ? stream : undefined)
      }
    } catch (error) {
      this.clearFaults()
      for (const array of family.arrays) if (!array.freed) array.free()
      throw error
    }
  }

  protected fill(): void {
    const family = this.anyFamily(each => !this.isAsleep(each))
    family?.write(this.random.below(this.ranks), this.numbers())
  }

  protected compare(): void {
    const family = this.anyFamily(each => !this.isAsleep(each))
    if (family !== null && family.compare(`seed ${this.seed}`) > 0) this.note('compared')
  }

  protected trim(): void {
    const rank = this.random.below(this.ranks)
    const pool = this.anyPool(rank)
    if (this.random.below(2) === 0) this.world.devices[rank].synchronize()
    const before = pool.segments().length
    if (!pool.asleep) pool.trimTo(this.random.below(2) * this.random.below(CAPACITY))
    if (pool.segments().length < before) this.note('shrunk')
  }

  protected limit(): void {
    const pool = this.anyPool(this.random.below(this.ranks))
    if (!pool.asleep)
      pool.maxPoolBytes = this.random.below(2) === 0 ? CAPACITY : 8 * MiB + this.random.below(CAPACITY / 2)
  }

  protected replaceStream(): void {
    const rank = this.random.below(this.ranks)
    const index = 1 + this.random.below(STREAMS - 1)
    const stream = this.streams[rank][index]
    if (this.families.some(({ arrays }) => arrays[rank].stream === stream)) return
    this.streams[rank][index] = this.world.devices[rank].createStream()
    this.releaseHolds()
    stream.close()
    this.note('closedStream')
  }

  /** Keeps work of a stream from running until the host waits. */
  protected hold(): void {
    const rank = this.random.below(this.ranks)
    const stream = this.anyStream(rank)
    this.world.devices[rank].context.activate()
    this.holds.push({ rank, stream, ticket: this.world.driver.holdOperation(stream.handle) })
  }

  protected releaseHolds(): void {
    for (const { rank, stream, ticket } of this.holds.splice(0)) {
      this.world.devices[rank].context.activate()
      this.world.driver.releaseThrough(stream.handle, ticket)
    }
  }

  protected synchronize(): void {
    for (const device of this.world.devices) if (!device.context.released) device.synchronize()
  }

  protected isAsleep({ home }: Family): boolean {
    return home === 'virtual' && this.pools.some(({ virtual }) => virtual.asleep)
  }

  protected anyFamily(isWanted: (family: Family) => boolean): Family | null {
    const wanted = this.families.filter(isWanted)
    return wanted.length === 0 ? null : wanted[this.random.below(wanted.length)]
  }

  protected anyStream(rank: number): Stream {
    return this.streams[rank][this.random.below(STREAMS)]
  }

  protected poolOf(rank: number, home: unknown): CachingPool {
    const { registrable, virtual } = this.pools[rank]
    return home === 'virtual' ? virtual : registrable
  }

  protected anyPool(rank: number): CachingPool {
    const { registrable, virtual } = this.pools[rank]
    return this.random.below(2) === 0 ? registrable : virtual
  }

  private numbers(): number[] {
    return Array.from({ length: CELLS }, () => this.random.next())
  }
}

/** Work of `later` comes after the work of `earlier` so far. */
export function signal(earlier: Stream, later: Stream): void {
  if (earlier === later) return
  using event = new Event(earlier.context)
  event.record(earlier)
  later.wait(event)
}
