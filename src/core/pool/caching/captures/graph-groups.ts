// The graph groups of a pool: makes them, and gives their memory back when the pool needs it or ends.

import type { RecordTable } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import type { Capture } from '../../../order/capture.js'
import type { Clocks } from '../../../order/clocks.js'
import type { OrderedStream } from '../../../order/ordered-stream.js'
import type { Backing } from '../../backing/backing.js'
import { RangeHeap } from '../../backing/range-heap.js'
import { VirtualBacking } from '../../backing/virtual-backing.js'
import type { Use } from '../central/deferred.js'
import { ArenaScratch, type ScratchArena } from './arena-scratch.js'
import { GroupCaptures } from './group-captures.js'
import { type GroupHeap, GroupMemory, spoiltError } from './group-memory.js'
import { GroupOrder } from './group-order.js'
import { Parts } from './parts.js'

/** Fills poisoned scratch: NaN for every float type. */
export const POISON = 0xff

/** The part of the pool's central heap that groups use. */
export interface GroupHost {
  readonly backing: Backing
  /** Gives idle memory back to the device. */
  makeRoom(): void
  takeIdle(units: number): number
  giveBackAfter(record: number, uses: readonly Use[]): void
}

export interface GroupConfig {
  /** whether a launch is refused that would have to wait */
  readonly refuses: boolean
  /** the most bytes of the group, and whether the program has set it */
  readonly maxBytes: number
  readonly isLimited: boolean
  readonly poison: boolean
  /** scratch beside that of the pool */
  readonly arena: ScratchArena | null
}

export class GraphGroups {
  /** with the captures of this thread; null for captures of other threads */
  private readonly groups = new Map<GroupMemory, GroupCaptures | null>()

  constructor(
    private readonly records: RecordTable,
    private readonly clocks: Clocks,
    private readonly host: GroupHost,
    /** the pool's arenas */
    private readonly arenas: { readonly asleep: boolean; arenaOf(capture: Capture): unknown },
  ) {}

  /** A group of this thread. Throws the driver's error if it does not reserve the addresses. An arena must be lendable. */
  create(config: GroupConfig): GroupCaptures {
    const order = new GroupOrder(this.clocks, {
      refuses: config.refuses,
      poison: config.poison ? stream => this.fill(memory, lent, stream) : null,
      state: new Float64Array(GroupOrder.WORDS),
      lock: null,
    })
    const memory = this.open(config, order, this.records)
    const captures = new GroupCaptures(memory, capture => this.arenas.arenaOf(capture))
    this.groups.set(memory, captures)
    const lent = config.arena === null ? null : new ArenaScratch(config.arena, captures)
    return captures
  }

  /** The memory of a group whose blocks have their records in `records`. Throws as `create` does. */
  open({ maxBytes, isLimited }: GroupConfig, order: GroupOrder, records: RecordTable): GroupMemory {
    const { arenas, host } = this
    const source = {
      newHeap: (mostBytes: number) => this.newHeap(records, mostBytes),
      makeRoom: () => host.makeRoom(),
      isAsleep: () => arenas.asleep,
    }
    const memory = new GroupMemory(order, records, source, maxBytes, isLimited)
    this.groups.set(memory, null)
    return memory
  }

  /** The group of a capture of this thread, with its memory; null for none. */
  of(capture: Capture): readonly [GroupCaptures, GroupMemory] | null {
    for (const [memory, captures] of this.groups) if (captures?.capture === capture) return [captures, memory]
    return null
  }

  /** Gives back what no graph needs, and no work uses; returns the bytes. */
  giveBack(): number {
    let bytes = 0
    for (const group of this.groups.keys()) {
      bytes += group.giveBack()
      if (group.isGone) this.groups.delete(group)
    }
    return bytes
  }

  /** bytes of all groups */
  get reservedBytes(): number {
    let bytes = 0
    for (const group of this.groups.keys()) bytes += group.reservedBytes
    return bytes
  }

  /** Whether `maxBytes` of a group refused the request that an error is made for. */
  get isFull(): boolean {
    for (const group of this.groups.keys()) if (group.isFull) return true
    return false
  }

  /**
   * The taken blocks of ranges: their contents are kept by a sleep. Those of parts lie in memory that is kept whole.
   */
  takenInRanges(): number[] {
    return this.inRanges ? [...this.groups.keys()].flatMap(group => [...group.taken()]) : []
  }

  /** Whether there are live blocks whose use `checkUse` refuses. */
  get hasSpoilt(): boolean {
    for (const { spoilt } of this.groups.keys()) if (spoilt.size > 0) return true
    return false
  }

  /** Throws PoolError, in the name of `call`, for a live block where other graphs of a group may write. */
  checkUse(call: string, record: number): void {
    for (const { spoilt } of this.groups.keys()) if (spoilt.has(record)) throw spoiltError(call)
  }

  /** Work of other devices that uses memory of a group. */
  workOfPeers(): Use[] {
    return [...this.groups.keys()].flatMap(group => group.order.workOfPeers)
  }

  /** The pool is about to give its memory back, and keeps the contents of taken blocks alone. */
  loseContents(): void {
    for (const group of this.groups.keys()) group.loseContents()
  }

  /** The memory goes away. */
  lose(): void {
    for (const group of this.groups.keys()) {
      group.lost = true
      group.spoilt.clear()
    }
  }

  /** The heap inside a block of the pool; undefined for other blocks. */
  heapIn(record: number): SegregatedFit | undefined {
    for (const { heaps } of this.groups.keys()) {
      for (const heap of heaps) if (heap instanceof GroupParts && heap.heapIn(record)) return heap.heapIn(record)
    }
    return undefined
  }

  /** The first block of each range, by its number. */
  *ranges(): Generator<[range: number, first: number]> {
    if (!this.inRanges) return
    for (const group of this.groups.keys()) {
      for (const { heaps } of group.heaps) for (const { firstRecords } of heaps) yield* firstRecords
    }
  }

  check(): void {
    for (const group of this.groups.keys()) group.check()
  }

  private get inRanges(): boolean {
    return this.host.backing instanceof VirtualBacking
  }

  private newHeap(records: RecordTable, mostBytes: number): GroupHeap {
    const { host } = this
    const { backing } = host
    if (!(backing instanceof VirtualBacking)) return new GroupParts(records, host)
    const { granuleBytes } = backing
    return new RangeHeap(records, backing.sides, Math.ceil(mostBytes / granuleBytes) * granuleBytes)
  }

  /** Fills the scratch in the order of `stream`. */
  private fill(memory: GroupMemory, arena: ArenaScratch | null, stream: OrderedStream): void {
    const driver = this.clocks.context.activate()
    const { records, host } = this
    const fill = (ptr: number, bytes: number) =>
      stream.submit('launch', handle => driver.cuMemsetD8Async(ptr, POISON, bytes, handle))
    for (const record of memory.idle()) {
      const ptr = host.backing.bases[records.rangeOf(record)] + records.offsetOf(record) * UNIT_BYTES
      fill(ptr, records.unitsOf(record) * UNIT_BYTES)
    }
    if (arena !== null && arena.bytes > 0) fill(arena.ptr, arena.bytes)
  }
}

/** The memory of a group without virtual memory. */
class GroupParts extends Parts implements GroupHeap {
  constructor(
    records: RecordTable,
    private readonly host: GroupHost,
  ) {
    super(records, host)
  }

  trim(): void {
    for (const record of this.takeEmpty()) this.host.giveBackAfter(record, [])
  }

  close(): boolean {
    this.trim()
    return this.empty
  }
}
