// The memory of a group of graphs, and which capture may take of it. All graphs use the scratch in turn. The next
// capture gets all that one has freed, because launches never overlap (group-order.ts). Outputs that outlive a launch
// have memory of their own, so that they do not lie between the scratch. With virtual memory both are ranges that grow
// in place; otherwise they are parts.

import { formatBytes } from '../../../base/bytes.js'
import { PoolError } from '../../../base/errors.js'
import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { type RecordTable, State } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import type { Capture, CaptureGroup } from '../../../order/capture.js'
import { Footprint } from './footprint.js'
import type { GroupOrder } from './group-order.js'

/** Where blocks of a group lie. */
export interface GroupHeap {
  readonly reservedBytes: number
  /** whether `mostBytes` has refused the last block */
  readonly isFull: boolean
  readonly heaps: readonly SegregatedFit[]
  owns(record: number): boolean
  /** as `RangeHeap.take` */
  take(units: number, alignUnits: number, key: number, stamp: number, admission: Admission, mostBytes: number): number
  reserve(bytes: number): boolean
  free(record: number, key: number, stamp: number): void
  settle(): void
  /** Gives free memory back that nothing uses. */
  trim(): void
  /** Gives everything back; false while a block is taken. */
  close(): boolean
  check(): void
}

/** The arena of a capture. */
export interface Arena {
  /** its live blocks */
  held(): Iterable<number>
}

/** The part of its pool that a group uses. */
export interface GroupSource {
  /** Throws the driver's error if it does not reserve the addresses. */
  newHeap(mostBytes: number): GroupHeap
  /** Gives idle memory of the pool back to the device. */
  makeRoom(): void
  /** Gives a group's capture its arena. */
  arenaFor(capture: Capture): Arena
  isAsleep(): boolean
}

/** An output whose memory the capture gives back at its end. */
interface SharedOutput {
  readonly block: { readonly freed: boolean; readonly record: number }
  /** The capture ends: the memory is scratch from now on. */
  becomeScratch(): void
}

/** groups that this thread has made */
let groups = 0

export class GroupMemory implements CaptureGroup {
  /** tells the groups of a thread apart */
  readonly number = ++groups
  /** the capture that is under way */
  capture: Capture | null = null
  /** the pool is closed */
  lost = false
  /** the group is closed: its memory goes as soon as possible */
  closed = false
  /** whether the next block is an output of its own */
  takesOutput = false
  /** whether `maxBytes` refused the capture's last request, or the reserve whose error is being made */
  isFull = false
  private arena: Arena | null = null
  private captures = 0
  /** the scratch that the capture under way writes */
  private written = new Footprint()
  /** the same by graph that can be launched */
  private readonly writtenBy = new Map<Capture, Footprint>()
  private scratch: GroupHeap | null
  /** null before the first own output */
  private outputs: GroupHeap | null = null
  /** freed memory and that of closed graphs, which work may still use */
  private recent = new Footprint()
  /** freed outputs, which work may still use */
  private readonly returning: number[] = []
  /** freed blocks that the capture under way must not use again */
  private readonly spent: number[] = []
  private readonly shared: SharedOutput[] = []
  /** live blocks between scratch, of captures that have ended */
  private readonly pinned = new Set<number>()

  constructor(
    readonly order: GroupOrder,
    private readonly records: RecordTable,
    private readonly source: GroupSource,
    readonly maxBytes: number,
    private readonly isLimited: boolean,
  ) {
    this.scratch = source.newHeap(maxBytes)
  }

  begin(capture: Capture): number {
    this.capture = capture
    this.arena = this.source.arenaFor(capture)
    this.written = new Footprint()
    return ++this.captures
  }

  checkEnd(capture: Capture): void {
    if (this.capture !== capture || this.lost) return
    for (const record of this.arena!.held()) {
      if (!this.scratch!.owns(record) || this.isShared(record)) continue
      for (const written of this.writtenBy.values())
        if (written.overlaps(this.records, record)) throw this.heldError(record)
      if (this.recent.overlaps(this.records, record)) this.finish()
    }
  }

  end(capture: Capture, hasGraph: boolean): void {
    if (this.capture !== capture) return
    const outputs = this.shared.splice(0)
    if (!this.lost) for (const output of outputs) output.becomeScratch()
    this.capture = null
    this.isFull = false
    if (hasGraph) this.writtenBy.set(capture, this.written)
    if (this.lost) return
    for (const record of this.arena!.held()) if (this.scratch!.owns(record)) this.pinned.add(record)
    for (const record of this.spent.splice(0)) this.scratch!.free(record, 0, 0)
    for (const heap of this.heaps) heap.settle()
  }

  /** A block for the capture, outside all bins; 0 without memory. `stamp` of the slot covers its captured work. */
  take(units: number, alignUnits: number, slot: number, stamp: number, admission: Admission): number {
    const heap = this.takesOutput ? this.outputHeap() : this.scratch!
    const mostBytes = this.maxBytes - (this.reservedBytes - heap.reservedBytes)
    const take = () => heap.take(units, alignUnits, keyOfSlot(slot), stamp, admission, mostBytes)
    const record = take() || (heap.isFull ? 0 : this.retry(take))
    this.isFull = record === 0 && heap.isFull && this.isLimited
    if (record !== 0 && heap === this.scratch) this.written.add(this.records, record)
    return record
  }

  /** Frees scratch that the capture may use again after `stamp` of `key`. */
  freeAfter(record: number, key: number, stamp: number): void {
    this.scratch!.free(record, key, stamp)
  }

  /** Frees scratch that later captures may use at once. The capture of the block itself does not get it again. */
  freeScratch(record: number, isOfCapture: boolean): void {
    this.pinned.delete(record)
    if (isOfCapture) this.setAside(record, this.spent)
    else {
      this.recent.add(this.records, record)
      this.scratch!.free(record, 0, 0)
    }
  }

  /** Takes the memory of an output back, which no open graph writes. */
  freeOutput(record: number): void {
    this.setAside(record, this.returning)
  }

  /** Keeps a freed block from use, in a list. */
  setAside(record: number, list: number[]): void {
    this.records.setState(record, State.captured)
    this.records.setKey(record, 0)
    list.push(record)
  }

  /** The memory of an output is scratch once the capture has ended. */
  share(output: SharedOutput): void {
    this.shared.push(output)
  }

  /** Takes scratch until there are `bytes`. False if limit or device do not allow it. */
  reserve(bytes: number): boolean {
    const isFull = bytes > this.maxBytes - this.ownBytes
    this.isFull = isFull && this.isLimited
    if (isFull) return false
    const reserve = () => this.scratch!.reserve(bytes)
    return reserve() || this.retry(reserve)
  }

  /** Gives back what nothing uses, if no graph can be launched; returns the bytes. */
  giveBack(): number {
    if (this.lost || this.source.isAsleep() || this.capture !== null || this.graphs > 0 || !this.order.isComplete())
      return 0
    const before = this.reservedBytes
    this.forgetUses()
    try {
      for (const heap of this.heaps) heap.trim()
      if (this.closed && this.outputs?.close() === true) this.outputs = null
      if (this.closed && this.scratch?.close() === true) this.scratch = null
    } finally {
      if (this.reservedBytes < before) this.loseContents()
    }
    return before - this.reservedBytes
  }

  /** graphs that can be launched */
  get graphs(): number {
    return this.lost ? 0 : this.writtenBy.size
  }

  /** The graph of a capture can no longer be launched; its launches may be under way. */
  forget(capture: Capture): void {
    const written = this.writtenBy.get(capture)
    if (written !== undefined) this.recent.addAll(written)
    this.writtenBy.delete(capture)
  }

  /** Whether a block is an output of its own. */
  isOutput(record: number): boolean {
    return this.outputs?.owns(record) === true
  }

  /** Whether the group is closed and has nothing left. */
  get isGone(): boolean {
    return this.closed && this.scratch === null && this.outputs === null
  }

  /** Scratch was given back, or is about to be: shared outputs have no contents any more. */
  loseContents(): void {
    this.order.latest = 0
  }

  get heaps(): readonly GroupHeap[] {
    return [this.scratch, this.outputs].filter(heap => heap !== null)
  }

  get reservedBytes(): number {
    return this.scratchBytes + this.ownBytes
  }

  get scratchBytes(): number {
    return this.lost ? 0 : (this.scratch?.reservedBytes ?? 0)
  }

  get ownBytes(): number {
    return this.lost ? 0 : (this.outputs?.reservedBytes ?? 0)
  }

  get pinnedBytes(): number {
    if (this.lost) return 0
    let units = 0
    for (const record of this.pinned) units += this.records.unitsOf(record)
    return units * UNIT_BYTES
  }

  /** The taken blocks: those of outputs, and those between scratch. */
  *taken(): Generator<number> {
    for (const record of this.blocks()) if (this.records.state(record) !== State.free) yield record
  }

  /** The free blocks of the scratch. */
  *idle(): Generator<number> {
    for (const record of blocksIn(this.records, this.scratch!.heaps)) {
      if (this.records.state(record) === State.free) yield record
    }
  }

  check(): void {
    for (const heap of this.heaps) heap.check()
  }

  private *blocks(): Generator<number> {
    for (const { heaps } of this.heaps) yield* blocksIn(this.records, heaps)
  }

  private retry<R>(work: () => R): R {
    this.source.makeRoom()
    return work()
  }

  private isShared(record: number): boolean {
    return this.shared.some(({ block }) => !block.freed && block.record === record)
  }

  /** Memory whose contents the program may use before the next launch must not be in use. */
  private outputHeap(): GroupHeap {
    if (this.returning.length > 0) this.finish()
    this.outputs ??= this.source.newHeap(this.maxBytes)
    return this.outputs
  }

  /** Waits on the host for all work that uses memory of the group. */
  private finish(): void {
    this.order.finish()
    this.forgetUses()
  }

  /** No work uses memory of the group any more. */
  private forgetUses(): void {
    this.recent = new Footprint()
    for (const record of this.returning.splice(0)) this.outputs!.free(record, 0, 0)
  }

  private heldError(record: number): PoolError {
    const bytes = formatBytes(this.records.unitsOf(record) * UNIT_BYTES)
    return new PoolError(
      `endCapture: a buffer of ${bytes} is still held where earlier graphs of the group write; free it in the capture, ` +
        'or allocate it by group.allocateOutput',
    )
  }
}

/** The blocks of heaps, without addresses that have no memory. */
function* blocksIn(records: RecordTable, heaps: readonly SegregatedFit[]): Generator<number> {
  for (const { firstRecords } of heaps) {
    for (const [, first] of firstRecords) {
      for (let record = first; record !== 0; record = records.nextOf(record)) {
        if (records.state(record) !== State.absent) yield record
      }
    }
  }
}
