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
import { spoiltError } from './group-errors.js'
import { type GroupHeap, GroupMemory, type GroupSource } from './group-memory.js'
import { GroupOrder } from './group-order.js'
import { GuestMemory } from './guest-memory.js'
import { Parts } from './parts.js'
import { fillWithPoison } from './poison.js'

/** The part of the pool's central heap that groups use. */
export interface GroupHost {
  readonly backing: Backing
  readonly hasOneSize: boolean
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
  /** captures of groups of other pools that have blocks of this one, by the memory of those groups */
  private readonly guests = new Map<GroupMemory, GroupCaptures>()

  constructor(
    private readonly records: RecordTable,
    private readonly clocks: Clocks,
    private readonly host: GroupHost,
    /** the pool's arenas */
    private readonly arenas: { readonly asleep: boolean; arenaOf(capture: Capture): unknown },
  ) {}

  /**
   * A group of this thread, whose arena must be lendable. Throws the driver's error if that does not reserve the
   * addresses.
   */
  create(config: GroupConfig): GroupCaptures {
    const order = new GroupOrder(this.clocks, {
      refuses: config.refuses,
      poison: config.poison ? (stream, graph) => this.fill(memory, lent, stream, graph) : null,
      state: new Float64Array(GroupOrder.WORDS),
      lock: null,
    })
    const memory = this.open(config, order, this.records)
    const captures = this.capturesOf(memory)
    const lent = config.arena === null ? null : new ArenaScratch(config.arena, captures)
    return captures
  }

  /** The memory of a group whose blocks have their records in `records`. Throws as `create` does. */
  open({ maxBytes, isLimited }: GroupConfig, order: GroupOrder, records: RecordTable): GroupMemory {
    const memory = new GroupMemory(order, records, this.sourceFor(order, records), maxBytes, isLimited)
    this.groups.set(memory, null)
    return memory
  }

  /** A pool with blocks of one size keeps those of a capture for its group, if that is another pool's of the thread. */
  beGuest(capture: Capture): void {
    const { group } = capture
    if (!this.host.hasOneSize || !(group instanceof GroupCaptures)) return
    const { store, number } = group
    if (!(store instanceof GroupMemory)) return
    const guest = this.guests.get(store) ?? this.guestOf(store, number)
    if (guest.capture === capture) return
    capture.members.add(guest)
    guest.begin(capture, 'allocate')
  }

  private guestOf(host: GroupMemory, number: number): GroupCaptures {
    const { order } = host
    const guest = this.capturesOf(new GuestMemory(host, this.records, this.sourceFor(order, this.records)), number)
    this.guests.set(host, guest)
    return guest
  }

  /** The captures of this thread that have a group's memory. */
  private capturesOf(memory: GroupMemory, number?: number): GroupCaptures {
    const captures = new GroupCaptures(memory, capture => this.arenas.arenaOf(capture), null, number)
    this.groups.set(memory, captures)
    return captures
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
    for (const [group, { store }] of this.guests) if (store.closed) this.guests.delete(group)
    return bytes
  }

  /** Whether no group has memory. */
  get empty(): boolean {
    for (const { reservedBytes } of this.groups.keys()) if (reservedBytes > 0) return false
    return true
  }

  /** units that no block uses, and which do not go back to the next request */
  get idleUnits(): number {
    let units = 0
    for (const group of this.groups.keys()) {
      const heaps = group.isEnding ? [] : group.heaps
      for (const { heaps: inside } of heaps) for (const { freeUnits } of inside) units += freeUnits
    }
    return units
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
    for (const group of this.groups.keys()) group.order.loseContents()
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

  private sourceFor(order: GroupOrder, records: RecordTable): GroupSource {
    const { arenas, host } = this
    return {
      newHeap: (mostBytes: number) => this.newHeap(records, mostBytes, order),
      makeRoom: () => host.makeRoom(),
      isAsleep: () => arenas.asleep,
    }
  }

  private newHeap(records: RecordTable, mostBytes: number, order: GroupOrder): GroupHeap {
    const { host } = this
    const { backing } = host
    if (!(backing instanceof VirtualBacking)) return new GroupParts(records, host, order)
    const { granuleBytes } = backing
    return new RangeHeap(records, backing.sides, Math.ceil(mostBytes / granuleBytes) * granuleBytes)
  }

  /** Fills the scratch of a graph in the order of `stream`: the arena may be gone for graphs that do not use it. */
  private fill(memory: GroupMemory, arena: ArenaScratch | null, stream: OrderedStream, graph: number): void {
    const { records, host } = this
    for (const record of memory.idle()) {
      const ptr = host.backing.bases[records.rangeOf(record)] + records.offsetOf(record) * UNIT_BYTES
      fillWithPoison(stream, ptr, records.unitsOf(record) * UNIT_BYTES)
    }
    if (arena?.isUsedBy(graph) && arena.bytes > 0) fillWithPoison(stream, arena.ptr, arena.bytes)
  }
}

/** The memory of a group without virtual memory. */
class GroupParts extends Parts implements GroupHeap {
  constructor(
    records: RecordTable,
    private readonly host: GroupHost,
    private readonly order: GroupOrder,
  ) {
    super(records, host)
  }

  trim(): void {
    const uses = this.order.isComplete() ? [] : this.order.work
    for (const record of this.takeEmpty()) this.host.giveBackAfter(record, uses)
  }

  close(): boolean {
    this.trim()
    return this.empty
  }
}
