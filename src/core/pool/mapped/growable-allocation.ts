// The allocation behind a growable buffer and its typed views. The range (growable-range.ts) has addresses and
// memory; this file decides which uses are allowed, and when memory may be unmapped. cuMemUnmap does not wait for
// work, so a shrink or a free only lowers the length. The memory beyond is unmapped once the host has seen all work
// complete that was submitted until then to the buffer's streams. One such wait is under way at a time; memory cut
// off meanwhile waits for the next.

import { OutOfRangeError } from '../../base/argument-errors.js'
import { assert } from '../../base/assert.js'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { formatBytes } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { isDriverError } from '../../base/thrown.js'
import { type Context, unreachable } from '../../driver/context.js'
import type { Clocks } from '../../order/clocks.js'
import { type Holding, holdingWhile } from '../../order/holding.js'
import { untilDone } from '../../order/polling.js'
import type { Stream } from '../../order/stream.js'
import { type AccessLocation, checkUser, type PoolAccess, peerOf } from '../access.js'
import { type BufferOwner, looksOnly } from '../allocation.js'
import { isOutOfMemory } from '../backing/backing.js'
import type { GrowableRange } from '../backing/growable-range.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import { DeviceBuffer } from '../buffer.js'
import { askForLess, deviceFull } from '../out-of-memory.js'
import { RecordAllocation, type RecordPool, SlowAllocation } from '../record-allocation.js'
import type { Sleeper } from '../sleep/sleeper.js'

/** The record of the buffer itself; views have higher records. */
export const WHOLE = 0

export type Use = readonly [clocks: Clocks, slot: number, stamp: number]

export class GrowableAllocation extends SlowAllocation implements RecordPool {
  readonly context: Context
  /** the buffer itself is its own owner and pool */
  owner: BufferOwner = this
  readonly pool = this
  readonly record = WHOLE
  /** true when memory and addresses have been given back */
  closed = false
  byteLength = 0
  /** null until the first sleep */
  sleeper: Sleeper | null = null
  private freed = false
  /** bytes that a view covers from the start of the buffer, by record */
  private readonly views = new Map<number, number>()
  private lastView = WHOLE
  /** the streams that may use the buffer: its own, and those announced */
  private readonly users: Set<Stream>
  /** memory beyond `keepBytes` can be unmapped when these uses are complete */
  private leaving: { keepBytes: number; readonly uses: readonly Use[] } | null = null
  /** whether a poll of `leaving` runs in the background */
  private watched = false
  /** stand for the buffer in the graphs whose work has its address, by the bytes that this work may use */
  private readonly inGraphs = new Map<number, Holding>()

  constructor(
    readonly clocks: Clocks,
    readonly stream: Stream,
    readonly range: GrowableRange,
  ) {
    super()
    this.context = clocks.context
    this.users = new Set([stream])
  }

  get asleep(): boolean {
    return this.sleeper?.isAsleep === true
  }

  private get isChanging(): boolean {
    return this.sleeper?.isChanging === true
  }

  /** Whether work that is being captured has the address. */
  get isCaptured(): boolean {
    const ours = [...this.inGraphs.values()]
    return [...this.clocks.captures].some(({ holdings }) => ours.some(holding => holdings.has(holding)))
  }

  grow(size: ByteSize): void {
    this.checkAwake(WHOLE, 'grow')
    const bytes = bytesOf(size, 'grow: bytes', this.clocks.context, 0)
    const { byteLength, range } = this
    if (bytes < byteLength) {
      throw new OutOfRangeError(`grow: ${bytes} bytes are fewer than the ${byteLength} there are; use shrink`)
    }
    if (bytes > range.capacityBytes) {
      throw new OutOfRangeError(
        `grow: ${bytes} bytes are beyond the ${range.capacityBytes} reserved; create the buffer with more capacityBytes`,
      )
    }
    try {
      range.growTo(bytes)
    } catch (error) {
      throw isOutOfMemory(error) ? this.outOfMemory(bytes) : error
    }
    this.byteLength = bytes
    if (this.leaving !== null) this.leaving.keepBytes = Math.max(this.leaving.keepBytes, bytes)
  }

  segments(): PoolSegment[] {
    this.checkLive(WHOLE, 'segments')
    return this.range.segments()
  }

  observeSegments(observer: SegmentObserver): () => void {
    this.checkAwake(WHOLE, 'observeSegments')
    return this.range.watch.observe(observer, this.range.segments())
  }

  shrink(size: ByteSize): void {
    this.checkAwake(WHOLE, 'shrink')
    const bytes = bytesOf(size, 'shrink: bytes', this.clocks.context, 0)
    if (bytes > this.byteLength) {
      throw new OutOfRangeError(`shrink: ${bytes} bytes are more than the ${this.byteLength} there are; use grow`)
    }
    for (const covered of this.views.values()) {
      if (covered <= bytes) continue
      throw new PoolError(`shrink: a typed view covers ${covered} bytes, more than ${bytes}; free the view first`)
    }
    this.byteLength = bytes
    this.settleInBackground()
  }

  /** A buffer over the first `bytes`, valid while this buffer grows. */
  view(bytes: number): DeviceBuffer {
    this.checkAwake(WHOLE, 'array')
    if (bytes > this.byteLength) {
      throw new OutOfRangeError(
        `array: ${bytes} bytes are more than the ${this.byteLength} there are; grow the buffer first`,
      )
    }
    this.views.set(++this.lastView, bytes)
    return new DeviceBuffer(new RecordAllocation(this, this.lastView, this.stream, this), 0)
  }

  /** Frees the buffer, with all its mapped memory, or frees a view. */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    this.checkLive(buffer.record, 'free')
    if (stream !== undefined) {
      checkUser('free', stream, this)
      this.addUser(stream)
    }
    if (buffer.record !== WHOLE) {
      this.views.delete(buffer.record)
      return
    }
    this.end()
    this.sleeper?.close(false)
    this.leaving = null // later marks cover the uses that an earlier shrink waits for, too
    this.settleInBackground()
  }

  /** Gives everything back at once, before any work could use it. */
  discard(): void {
    this.users.clear()
    this.end()
    this.context.discard(() => this.settle())
  }

  /** Unmaps memory that was cut off and is no longer in use; returns true when none of it is left. */
  settle(): boolean {
    while (this.hasExcess()) {
      if (this.isChanging) return false // copies may be under way
      this.leaving ??= { keepBytes: this.byteLength, uses: this.usesUntilNow() }
      const { keepBytes, uses } = this.leaving
      const pending = uses.filter(use => !this.isComplete(use)) // asks all uses, because each question places a mark
      if (pending.length > 0) return false
      this.giveBack(keepBytes)
      this.leaving = null
    }
    return true
  }

  /** Like `settle`, but waits on the host for the streams that used the buffer. */
  settleSync(): void {
    while (!this.settle()) {
      if (this.isChanging) throw new PoolError('settleSync: a sleep or wake copies the contents; await settled()')
      for (const [clocks, slot, stamp] of this.leaving!.uses) clocks.catchUp(slot, stamp, true)
    }
  }

  /** Waits for all work, and gives everything back, freed or not. A second close does nothing. */
  close(): void {
    this.range.watch.checkNotTelling('close')
    if (!this.closed) this.finishWork()
    this.end()
    this.sleeper?.close(true)
    if (this.closed) return
    this.context.giveBack(() => this.range.close())
    this.closed = true
  }

  /** For `close`: all waits come before the first change, because a device that captures refuses them. */
  private finishWork(): void {
    this.context.finishWork()
    for (const [clocks, slot, stamp] of this.usesUntilNow()) {
      if (clocks.context !== this.context) clocks.catchUp(slot, stamp, true)
    }
    for (const peer of this.range.access.peers) peer.finishWork()
  }

  addressOf(record: number, _tag: number, call: string): number {
    this.checkLive(record, call)
    if (looksOnly(call)) return this.range.base
    // An address alone uses no memory.
    if (call !== 'ptr') this.checkAwake(record, call)
    for (const { holdings } of this.clocks.captures) holdings.add(this.holdingOf(this.lengthOf(record)))
    return this.range.base
  }

  /** Stands in graphs for the first `bytes`: a graph that may use them is lost once the buffer is shorter. */
  private holdingOf(bytes: number): Holding {
    let holding = this.inGraphs.get(bytes)
    if (holding === undefined) {
      holding = holdingWhile(
        () => this.asleep,
        () => this.freed || this.byteLength < bytes,
      )
      this.inGraphs.set(bytes, holding)
    }
    return holding
  }

  requestedBytesOf(record: number, _tag: number, call: string): number {
    this.checkLive(record, call)
    return this.lengthOf(record)
  }

  private lengthOf(record: number): number {
    return record === WHOLE ? this.byteLength : this.views.get(record)!
  }

  isLive(record: number): boolean {
    return record === WHOLE ? !this.freed : this.views.has(record)
  }

  recordUse(record: number, _tag: number, stream: Stream): void {
    this.checkAwake(record, 'recordUse')
    if (!stream.context.sharesAddresses(this.context)) {
      throw unreachable('recordUse: the stream', stream.context, this.context)
    }
    this.addUser(stream)
  }

  changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.checkLive(WHOLE, 'setAccess')
    const peer = peerOf(this.context, location, access)
    if (peer !== null) this.range.access.change(peer, access)
  }

  reachableFrom(context: Context): boolean {
    return this.range.access.reaches(context)
  }

  /** Asserts that the buffer, its views and its memory agree. */
  check(): void {
    this.range.check()
    assert(this.closed || this.asleep || this.byteLength <= this.range.mappedBytes, 'the buffer has memory')
    for (const bytes of this.views.values()) assert(bytes <= this.byteLength, 'a view lies in its buffer')
    assert(this.leaving === null || this.leaving.keepBytes >= this.byteLength, 'what is in use stays')
  }

  private end(): void {
    this.freed = true
    this.byteLength = 0
    this.views.clear()
  }

  private addUser(stream: Stream): void {
    for (const user of this.users) {
      if (user.closed && user.clocks.completed[user.lastSlot] >= user.lastStamp) this.users.delete(user)
    }
    this.users.add(stream)
  }

  /**
   * Stamps that cover all work submitted until now: the next mark of each stream, or its last mark if it is closed.
   */
  usesUntilNow(): Use[] {
    return [...this.users].map(({ clocks, covering }) => [clocks, ...covering])
  }

  private isComplete([clocks, slot, stamp]: Use): boolean {
    if (clocks.completed[slot] < stamp) clocks.catchUp(slot, stamp, false)
    return clocks.completed[slot] >= stamp
  }

  private hasExcess(): boolean {
    return this.freed ? !this.closed : this.range.hasBeyond(this.byteLength)
  }

  private giveBack(keepBytes: number): void {
    if (!this.freed) {
      this.range.shrinkTo(keepBytes)
      return
    }
    this.range.close()
    this.closed = true
  }

  /** Settles now if possible, or as soon as possible, without keeping Node alive for it. */
  private settleInBackground(): void {
    if (this.settleQuietly() || this.watched) return
    this.watched = true
    void untilDone(() => this.settleQuietly(), { keepAlive: false }).finally(() => {
      this.watched = false
    })
  }

  /** When the driver or an observer refuses, this stops polling; the next call that gives memory back tries again. */
  private settleQuietly(): boolean {
    try {
      return this.settle()
    } catch (error) {
      if (isDriverError(error) || this.range.watch.isObserved) return true
      throw error
    }
  }

  private outOfMemory(bytes: number): OutOfMemoryError {
    const { byteLength, context, range } = this
    const { freeBytes: deviceFreeBytes, totalBytes } = context.activate().cuMemGetInfo()
    const largestFreeBytes = Math.min(range.capacityBytes, range.heldBytes + deviceFreeBytes)
    const wish = byteLength === 0 ? 'for' : `to grow from ${formatBytes(byteLength)} to`
    return deviceFull(
      context,
      `no room ${wish} ${formatBytes(bytes)}: ${formatBytes(range.heldBytes)} are mapped, ` +
        `${formatBytes(deviceFreeBytes)} free on the device; free memory, here or in other programs`,
      {
        requestedBytes: bytes,
        liveBytes: byteLength,
        pendingBytes: this.leaving === null ? 0 : Math.max(0, range.heldBytes - this.leaving.keepBytes),
        reservedBytes: range.heldBytes,
        largestFreeBytes: largestFreeBytes - (largestFreeBytes % range.granuleBytes),
        maxPoolBytes: range.capacityBytes,
        deviceFreeBytes,
      },
      askForLess(bytes, totalBytes),
    )
  }

  private checkAwake(record: number, call: string): void {
    this.checkLive(record, call)
    if (this.asleep) throw this.sleeper!.asleepError(call)
  }

  /** Throws PoolError, in the name of `call`, if the buffer or view was freed. */
  checkLive(record: number, call: string): void {
    if (this.isLive(record)) return
    const what = record === WHOLE ? 'buffer' : 'view'
    throw new PoolError(
      `${call}: the ${what} was already freed, or its device closed; keep no reference to it`,
      'ERR_BUFFER_FREED',
    )
  }
}
