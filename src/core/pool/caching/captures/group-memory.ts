// The memory of a group of graphs, and which capture may take of it. All graphs use the scratch in turn. The next
// capture gets all that one has freed, because launches never overlap (group-order.ts). Outputs that outlive a launch
// have memory of their own, so that they do not lie between the scratch. With virtual memory both are ranges that grow
// in place; otherwise they are parts.
//
// Graphs are numbers here, and blocks are records: the threads of a shared pool capture, and its pool server has the
// memory.

import { formatBytes } from '../../../base/bytes.js'
import { PoolError } from '../../../base/errors.js'
import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { type RecordTable, State } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { finish, type Waiting } from '../central/parts.js'
import { Footprint } from './footprint.js'
import type { GroupOrder } from './group-order.js'
import type { BlockUse, GroupFigures, GroupStore } from './group-store.js'

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

/** The part of its pool that a group uses. */
export interface GroupSource {
  /** Throws the driver's error if it does not reserve the addresses. */
  newHeap(mostBytes: number): GroupHeap
  /** Gives idle memory of the pool back to the device. */
  makeRoom(): void
  isAsleep(): boolean
}

/** A block that a capture asks for. */
interface BlockRequest {
  readonly units: number
  readonly alignUnits: number
  readonly slot: number
  /** of the slot, in the clocks of the capture: covers its captured work so far */
  readonly stamp: number
  readonly admission: Admission
  readonly use: BlockUse
}

/** A live block. */
interface HeldBlock {
  /** the number of the graph whose capture has taken it */
  readonly graph: number
  readonly use: BlockUse
}

export class GroupMemory implements GroupStore {
  /** the pool is closed */
  lost = false
  /** the group is closed: its memory goes as soon as possible */
  closed = false
  /** whether `maxBytes` refused the capture's last request, or the reserve whose error is being made */
  isFull = false
  /** the number of the graph whose capture is under way; 0 for none */
  capturing = 0
  private captures = 0
  private readonly held = new Map<number, HeldBlock>()
  /** those between scratch whose captures made no graph: nothing has kept graphs apart that write there */
  readonly spoilt = new Set<number>()
  /** the scratch that the capture under way writes */
  private written = new Footprint()
  /** the same by graph that can be launched */
  private readonly writtenBy = new Map<number, Footprint>()
  private scratch: GroupHeap | null
  /** null before the first own output */
  private outputs: GroupHeap | null = null
  /** freed memory and that of closed graphs, which work may still use */
  private recent = new Footprint()
  /** freed outputs, which work may still use */
  private readonly returning: number[] = []
  /** counts what was added to both */
  private returns = 0
  /** freed blocks that the capture under way must not use again */
  private readonly spent: number[] = []
  /** freed outputs, by the graph that still writes them */
  private readonly spentOutputs = new Map<number, number[]>()

  constructor(
    readonly order: GroupOrder,
    private readonly records: RecordTable,
    private readonly source: GroupSource,
    readonly maxBytes: number,
    private readonly isLimited: boolean,
  ) {
    this.scratch = source.newHeap(maxBytes)
  }

  /** A capture begins, and no other one is under way; returns the number of its graph. */
  begin(): number {
    this.capturing = ++this.captures
    this.written = new Footprint()
    return this.capturing
  }

  checkEnd(): void {
    finish(this.checkHeld())
  }

  /** Throws PoolError for a buffer that the capture holds where other graphs write. */
  *checkHeld(): Waiting<void> {
    for (const [record, { graph, use }] of this.held) {
      if (graph !== this.capturing || use !== 'scratch') continue
      for (const written of this.writtenBy.values())
        if (written.overlaps(this.records, record)) throw this.heldError(record)
      if (this.recent.overlaps(this.records, record)) yield* this.finish()
    }
  }

  /** The capture of a graph ends; without a graph it has failed. */
  end(graph: number, hasGraph: boolean): void {
    if (graph === this.capturing) {
      this.capturing = 0
      this.isFull = false
      if (hasGraph) this.writtenBy.set(graph, this.written)
      for (const record of this.spent.splice(0)) this.scratch!.free(record, 0, 0)
      for (const heap of this.heaps) heap.settle()
      if (!hasGraph) for (const record of this.heldBy(graph)) if (!this.isOutput(record)) this.spoilt.add(record)
    }
    if (!hasGraph) this.forget(graph)
  }

  /** A block for the capture, outside all bins; 0 without memory. */
  *take({ units, alignUnits, slot, stamp, admission, use }: BlockRequest): Waiting<number> {
    const heap = use === 'own' ? yield* this.outputHeap() : this.scratch!
    const mostBytes = this.maxBytes - (this.reservedBytes - heap.reservedBytes)
    const take = () => heap.take(units, alignUnits, keyOfSlot(slot), stamp, admission, mostBytes)
    const record = take() || (heap.isFull ? 0 : this.retry(take))
    this.isFull = record === 0 && heap.isFull && this.isLimited
    if (record === 0) return 0
    this.held.set(record, { graph: this.capturing, use })
    if (use !== 'own') this.written.add(this.records, record)
    return record
  }

  /** Takes a block back in its capture, which may use scratch again after `stamp` of `key`. */
  freeAfter(record: number, key: number, stamp: number): void {
    if (this.isOutput(record)) this.free(record)
    else {
      this.held.delete(record)
      this.scratch!.free(record, key, stamp)
    }
  }

  /**
   * Takes a block back. Later captures may use scratch at once, and an output once the graph that writes it is closed.
   * The capture that has taken it does not get it again.
   */
  free(record: number): void {
    const graph = this.graphOf(record)
    this.held.delete(record)
    this.spoilt.delete(record)
    if (this.isOutput(record)) this.setAside(record, this.isOpen(graph) ? this.spentOutputsOf(graph) : this.returning)
    else if (graph === this.capturing) this.setAside(record, this.spent)
    else {
      this.recent.add(this.records, record)
      this.scratch!.free(record, 0, 0)
    }
    this.returns++
  }

  /** The number of the graph whose capture has taken a live block. */
  graphOf(record: number): number {
    return this.held.get(record)!.graph
  }

  /** The live blocks of a graph, or of the capture that makes it. */
  heldBy(graph: number): number[] {
    return [...this.held].filter(([, block]) => block.graph === graph).map(([record]) => record)
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
    if (this.lost || this.source.isAsleep() || this.capturing > 0 || this.graphs > 0) return 0
    if (!this.isUnused()) return 0
    const before = this.reservedBytes
    this.forgetUses()
    try {
      for (const heap of this.heaps) heap.trim()
      if (this.closed && this.outputs?.close() === true) this.outputs = null
      if (this.closed && this.scratch?.close() === true) this.scratch = null
    } finally {
      if (this.reservedBytes < before) this.order.loseContents()
    }
    return before - this.reservedBytes
  }

  /** Ends the group. Throws PoolError while graphs can be launched, or a capture is under way. */
  close(): void {
    if (this.capturing > 0) throw new PoolError('close: a capture of the group is under way; end it first')
    if (this.graphs > 0) {
      const graphs = this.graphs === 1 ? '1 graph' : `${this.graphs} graphs`
      throw new PoolError(`close: ${graphs} of the group can be launched; close these first`, 'ERR_POOL_IN_USE')
    }
    this.closed = true
    this.giveBack()
  }

  figures(): GroupFigures {
    const { scratchBytes, ownBytes, pinnedBytes, graphs } = this
    return { scratchBytes, ownBytes, pinnedBytes, graphs }
  }

  /** graphs that can be launched */
  get graphs(): number {
    return this.lost ? 0 : this.writtenBy.size
  }

  /** A graph can no longer be launched, or was never made; its launches may be under way. */
  forget(graph: number): void {
    const written = this.writtenBy.get(graph)
    if (written !== undefined) this.recent.addAll(written)
    this.writtenBy.delete(graph)
    this.returning.push(...(this.spentOutputs.get(graph) ?? []))
    this.spentOutputs.delete(graph)
    this.returns++
  }

  /** Whether a graph can be launched, or is being captured. */
  isOpen(graph: number): boolean {
    return graph === this.capturing || this.writtenBy.has(graph)
  }

  /** Whether a block is an output of its own. */
  isOutput(record: number): boolean {
    return this.outputs?.owns(record) === true
  }

  /** Whether the group is closed: what it has goes back as soon as possible. */
  get isEnding(): boolean {
    return this.closed
  }

  /** Whether the group is closed and has nothing left. */
  get isGone(): boolean {
    return this.closed && this.scratch === null && this.outputs === null
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
    for (const [record, { graph, use }] of this.held) {
      if (use !== 'own' && graph !== this.capturing) units += this.records.unitsOf(record)
    }
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

  /** Whether no work uses memory of the group, and no thread is about to submit some. */
  protected isUnused(): boolean {
    const { order } = this
    if (!order.isComplete()) return false
    if (!order.isShared) return true
    this.order.loseContents() // a thread that comes to use an output from now on is refused
    return order.isComplete()
  }

  private retry<R>(work: () => R): R {
    this.source.makeRoom()
    return work()
  }

  private spentOutputsOf(graph: number): number[] {
    const spent = this.spentOutputs.get(graph) ?? []
    this.spentOutputs.set(graph, spent)
    return spent
  }

  /** Keeps a freed block from use, in a list. */
  private setAside(record: number, list: number[]): void {
    this.records.setState(record, State.captured)
    this.records.setKey(record, 0)
    list.push(record)
  }

  /** Memory whose contents the program may use before the next launch must not be in use. */
  private *outputHeap(): Waiting<GroupHeap> {
    if (this.returning.length > 0) yield* this.finish()
    this.outputs ??= this.source.newHeap(this.maxBytes)
    return this.outputs
  }

  /** Waits until no work uses memory that was given back. */
  private *finish(): Waiting<void> {
    let returns: number
    do {
      returns = this.returns
      yield* this.order.finish()
    } while (returns !== this.returns) // during the wait another thread has given more back
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
