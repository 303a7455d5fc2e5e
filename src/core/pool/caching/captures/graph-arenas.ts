// The part of a pool's memory that captures and their graphs use: an arena for each capture, and borrowed blocks of
// other owners. A borrowed block, once freed, goes from one graph that uses it to the next, then back to its owner:
// another graph's arena or the pool.

import type { RecordTable } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import type { Capture } from '../../../order/capture.js'
import type { CaptureObserver, Clocks } from '../../../order/clocks.js'
import { holdingWhile } from '../../../order/holding.js'
import type { Stream } from '../../../order/stream.js'
import type { BlockCache } from '../block-cache.js'
import type { Deferred, Use } from '../central/deferred.js'
import { FULL_CLASS } from '../stream-caches.js'
import { type ArenaSource, CaptureArena } from './capture-arena.js'
import { GraphGroups, type GroupHost } from './graph-groups.js'
import { GroupArena } from './group-arena.js'

export class GraphArenas implements ArenaSource, CaptureObserver {
  /** set while the pool sleeps: graphs that use its memory cannot be launched */
  asleep = false
  /** called when a stream of the device is captured; captured work may then use any live block */
  onCapture: () => void = () => {}
  /** stands for live blocks whose address captured work has */
  private readonly seenInCaptures = holdingWhile(
    () => this.asleep,
    () => this.isLost,
  )
  private isLost = false
  private readonly arenas = new Set<CaptureArena>()
  /** groups of graphs that share memory */
  readonly groups: GraphGroups
  /** the clocks of all devices whose streams use blocks */
  private readonly clocksOfUsers = new Set<Clocks>()

  constructor(
    private readonly records: RecordTable,
    private readonly caches: BlockCache,
    private readonly clocks: Clocks,
    private readonly deferred: Deferred,
    private readonly memory: GroupHost,
  ) {
    this.groups = new GraphGroups(records, clocks, memory, this)
  }

  /** A block for a captured stream, as `CentralHeap.allocate` returns it, at an address that stays. */
  allocate(units: number, alignUnits: number, stream: Stream): number {
    return this.arenaOf(stream.capture!).allocate(units, alignUnits, stream.lastSlot)
  }

  /**
   * Takes a block back on a captured stream. The capture uses its own blocks again; any other block waits until the
   * graph is closed.
   */
  free(record: number, stream: Stream): void {
    this.caches.handBack(record)
    const arena = this.arenaOf(stream.capture!)
    const uses = this.deferred.takeUses(record)
    if (arena.owns(record)) arena.freeCaptured(record, stream.lastSlot, uses)
    else this.keepFor(arena, record, [...uses, { clocks: this.clocks, slot: stream.lastSlot, stamp: stream.lastStamp }])
  }

  /** Takes a captured block back on a stream that is not captured, after `stamp` of its slot. */
  freeLater(record: number, slot: number, stamp: number): void {
    this.caches.handBack(record)
    this.takeBack(record, [{ clocks: this.clocks, slot, stamp }])
  }

  /** Whether a graph owns or uses a live block. */
  isCaptured(record: number): boolean {
    return this.isOfArena(record) || this.borrowerOf(record) !== undefined
  }

  /** Whether a live block belongs to the arena of a graph. */
  isOfArena(record: number): boolean {
    return this.records.sizeClassOf(record) === FULL_CLASS
  }

  /**
   * A stream uses a live block until the block is freed, in work that runs and in work that is captured until then.
   */
  announceUse(record: number, stream: Stream): void {
    this.deferred.announce(record, stream, Infinity)
    stream.clocks.captureObservers.add(this)
    this.clocksOfUsers.add(stream.clocks)
    if (stream.capture !== null) this.lend(record, stream.capture)
  }

  /** The address of a live block was asked for. Work of every capture that is under way may have it. */
  noteAddress(): void {
    for (const { holdings } of this.clocks.captures) holdings.add(this.seenInCaptures)
  }

  /** Whether a capture that is under way uses memory of the pool. */
  get isCapturing(): boolean {
    const hasAddress = [...this.clocks.captures].some(({ holdings }) => holdings.has(this.seenInCaptures))
    return hasAddress || this.find(arena => !arena.capture.ended) !== undefined
  }

  /** A stream is captured from now on: its graph may use all blocks that were announced to it. */
  joined(stream: Stream): void {
    this.onCapture()
    for (const record of this.deferred.announcedTo(stream)) this.lend(record, stream.capture!)
  }

  get hasOneSize(): boolean {
    return this.memory.hasOneSize
  }

  takeIdle(units: number): number {
    return this.memory.takeIdle(units)
  }

  /** Whether no graph has, or had, memory that has not come back. */
  get empty(): boolean {
    this.forgetEmpty()
    return this.arenas.size === 0 && this.groups.empty
  }

  /** Units that are not in use, and kept for graphs. */
  get keptUnits(): number {
    return [...this.arenas].reduce((sum, arena) => sum + arena.keptUnits, this.groups.idleUnits)
  }

  takeBack(record: number, uses: readonly Use[]): void {
    const borrower = this.borrowerOf(record)
    const owner = this.find(arena => arena.owns(record))
    // A graph that used the block may have been closed while another graph kept it. The closed graph has announced
    // its launches.
    const all = [...uses, ...this.deferred.takeUses(record)]
    if (borrower !== undefined) this.keepFor(borrower, record, all)
    else if (owner !== undefined) owner.free(record, all)
    else this.memory.giveBackAfter(record, all)
    this.forgetEmpty()
  }

  /** The heap inside a captured block; undefined for one that is kept whole. */
  heapIn(record: number): SegregatedFit | undefined {
    return this.find(arena => arena.heapIn(record) !== undefined)?.heapIn(record) ?? this.groups.heapIn(record)
  }

  /** The memory goes away. Graphs that use it must not be launched any more. */
  lose(): void {
    this.isLost = true
    for (const arena of this.arenas) arena.lost = true
    this.groups.lose()
    for (const clocks of [this.clocks, ...this.clocksOfUsers]) clocks.captureObservers.delete(this)
  }

  check(): void {
    for (const arena of this.arenas) arena.check()
    this.groups.check()
  }

  /** The arena of a capture, which it makes at first. */
  arenaOf(capture: Capture): CaptureArena {
    const find = () => this.find(arena => arena.capture === capture)
    const known = find()
    if (known !== undefined) return known
    this.forgetEmpty()
    this.groups.beGuest(capture) // its memory makes the arena
    return find() ?? this.newArena(capture)
  }

  private newArena(capture: Capture): CaptureArena {
    const group = this.groups.of(capture)
    const arena =
      group === null
        ? new CaptureArena(capture, this.records, this.caches, this)
        : new GroupArena(capture, this.records, this.caches, this, ...group)
    this.arenas.add(arena)
    return arena
  }

  /** A live block is used by captured work. */
  private lend(record: number, capture: Capture): void {
    const arena = this.arenaOf(capture)
    if (!arena.owns(record)) arena.borrowed.add(record)
  }

  /** A freed block stays for a graph that uses it. If the memory is of another one, its launches come after `uses`. */
  private keepFor(borrower: CaptureArena, record: number, uses: readonly Use[]): void {
    this.find(arena => arena.owns(record))?.noteUses(uses)
    borrower.keep(record, uses)
  }

  private forgetEmpty(): void {
    for (const arena of this.arenas) if (arena.empty) this.arenas.delete(arena)
  }

  private borrowerOf(record: number): CaptureArena | undefined {
    return this.find(arena => arena.borrowed.has(record))
  }

  private find(condition: (arena: CaptureArena) => boolean): CaptureArena | undefined {
    for (const arena of this.arenas) if (condition(arena)) return arena
    return undefined
  }
}
