// The buffers of threads that share a pool, handled as a careful user would: every use is announced, or ordered
// before the free. The oracle sees each grant and each free.

import assert from 'node:assert/strict'
import { PoolError } from '../src/core/base/errors.js'
import { UNIT_BYTES } from '../src/core/heap/size-classes.js'
import type { Stream } from '../src/core/order/stream.js'
import { SharedArenaPool } from '../src/core/pool/arena/shared-arena-pool.js'
import { DeviceBuffer } from '../src/core/pool/buffer.js'
import { HostBuffer } from '../src/core/pool/host/host-buffer.js'
import type { PoolStats } from '../src/core/pool/pool.js'
import type { TransferredBuffer } from '../src/core/pool/transferred-buffer.js'
import type { Point } from './call-order.js'
import type { ObservedDriver } from './observed-driver.js'
import type { Of } from './shared-operation.js'
import type { Buffer } from './shared-pools.js'
import type { SharedStreams } from './shared-streams.js'
import type { SharedThread } from './shared-thread.js'

interface SharedHeld {
  buffer: Buffer
  readonly bytes: number
  readonly ptr: number
  /** of a pool that no threads share */
  readonly own: boolean
  /** null while the buffer is on its way to another thread */
  thread: SharedThread | null
  sent: TransferredBuffer | null
  /** the point after which other streams may use it; null for host memory */
  readonly granted: Point | null
  /** by stream object: the last work */
  readonly uses: Map<Stream, Point>
  readonly announced: Set<Stream>
}

/** A number of buffers, and their requested bytes. */
interface Sum {
  readonly buffers: number
  readonly bytes: number
}

export class SharedBuffers {
  readonly held = new Map<number, SharedHeld>()
  /** from the shared pool */
  allocations = 0
  /** device memory, the target of copies from host memory */
  private readonly scratch: number

  constructor(
    private readonly driver: ObservedDriver,
    private readonly streams: SharedStreams,
    /** the thread that made the pool */
    private readonly maker: SharedThread,
    mostBytes: number,
  ) {
    this.scratch = maker.context.activate().cuMemAlloc(mostBytes)
  }

  close(): void {
    this.maker.context.activate().cuMemFree(this.scratch)
  }

  allocate(thread: SharedThread, operation: Of<'allocate'>): void {
    const { buffer: name, bytes, alignment, own } = operation
    const view = this.streams.view(thread, operation.stream)
    const pool = own ? thread.own : thread.front
    if (view === null || !pool) return
    const aligned = alignment === 0 ? undefined : alignment
    const isHost = this.isHost && !own
    if (!own && !isHost && !view.isShareable) {
      assert.throws(() => pool.tryAllocate(bytes, view), PoolError)
      return
    }
    const buffer = isHost ? pool.tryAllocate(bytes, undefined, aligned) : pool.tryAllocate(bytes, view, aligned)
    if (buffer === null) return
    if (!own) this.allocations++
    const ptr = addressOf(buffer)
    const queue = isHost ? null : thread.queueOf(view)
    this.driver.oracle.grant(ptr, ptr + Math.ceil(bytes / UNIT_BYTES) * UNIT_BYTES, queue)
    // An event recorded earlier does not cover waits that the pool has inserted.
    const point = thread.pointOf(view)
    const granted = isHost ? null : { ...point, position: point.position + 0.5 }
    this.held.set(name, {
      buffer,
      bytes,
      ptr,
      own,
      thread,
      sent: null,
      granted,
      uses: new Map(),
      announced: new Set(),
    })
  }

  use({ buffer: name, stream }: Of<'use'>): void {
    const held = this.held.get(name)
    const view = this.viewFor(held, stream)
    if (held === undefined || view === null) return
    const thread = held.thread!
    if (held.granted !== null && !this.streams.isBefore(held.granted, thread, view)) {
      const own = streamOf(held)!
      if (own.closed) thread.clocks.synchronize()
      else thread.order(own, view)
    }
    const driver = thread.context.activate()
    const { buffer, bytes, ptr } = held
    if (buffer instanceof HostBuffer) {
      // The copy goes into memory outside every pool, so the use of the buffer must be announced.
      if (!view.isShareable) return
      this.tell(held, view)
      driver.cuMemcpyHtoDAsync(this.scratch, buffer.bytes, view.handle)
    } else if (view === buffer.stream) buffer.fill(0)
    else driver.cuMemsetD8Async(ptr, 0, bytes, view.handle)
    held.uses.set(view, thread.pointOf(view))
  }

  announce({ buffer: name, stream }: Of<'announce'>): void {
    const held = this.held.get(name)
    const view = this.viewFor(held, stream)
    if (held !== undefined && view !== null) this.tell(held, view)
  }

  free({ buffer: name, stream, announce, byAddress }: Of<'free'>): void {
    const held = this.held.get(name)
    if (held === undefined || held.thread === null || held.thread.isDead) return
    const { buffer, thread, own, ptr } = held
    const mine = streamOf(held)
    let on = stream === undefined ? null : this.streams.view(thread, stream)
    if (!on?.isShareable && !own) on = null
    if (on !== null && mine !== null && on !== mine) {
      if (!mine.closed) thread.order(mine, on)
      else if (!this.streams.isBefore(this.streams.endOf(mine), thread, on)) on = null
    }
    this.settle(held, on ?? mine, announce)
    this.driver.oracle.free(ptr)
    try {
      if (byAddress && on === null && buffer instanceof DeviceBuffer) {
        const pool = own ? thread.own! : thread.front!
        if ('deallocate' in pool) pool.deallocate(ptr)
        else buffer.free()
      } else buffer.free(on ?? undefined)
      this.held.delete(name)
    } finally {
      if (!buffer.freed) this.driver.oracle.takeBack(ptr)
      else this.held.delete(name)
    }
    assert.throws(() => buffer.free(), PoolError)
  }

  /** Frees all buffers of a thread, one after another. */
  freeAllOf(thread: SharedThread): void {
    for (const [name, held] of [...this.held]) {
      if (held.thread === thread) this.free({ do: 'free', buffer: name, announce: true, byAddress: false })
    }
  }

  transfer({ buffer: name }: Of<'transfer'>): void {
    const held = this.held.get(name)
    if (held === undefined || held.own || held.thread === null || held.thread.isDead) return
    // Only its own thread can use the per-thread default stream.
    const views = [...held.uses.keys()].filter(view => !view.isShareable)
    this.settle(held, streamOf(held), true, views)
    held.sent = structuredClone(held.buffer.transfer())
    held.thread = null
    assert.throws(() => held.buffer.free(), PoolError)
  }

  adopt(thread: SharedThread, { buffers }: Of<'adopt'>): void {
    const list = buffers.flatMap(buffer => this.held.get(buffer) ?? []).filter(held => held.sent !== null)
    if (list.length === 0) return
    const sent = list.map(held => held.sent!)
    const adopted: readonly Buffer[] = sent.length === 1 ? [thread.front!.adopt(sent[0])] : thread.front!.adoptAll(sent)
    for (const [index, held] of list.entries()) {
      const buffer = adopted[index]
      assert.deepEqual([addressOf(buffer), buffer.byteLength], [held.ptr, held.bytes])
      Object.assign(held, { buffer, thread, sent: null })
      const view = streamOf(held)
      if (view !== null) this.streams.meet(thread, view)
    }
    assert.throws(() => thread.front!.adopt(sent[0]), PoolError)
  }

  /** A thread resets the arena, which frees all of its buffers. */
  reset(thread: SharedThread, arena: SharedArenaPool, view: Stream): void {
    const shared = [...this.held].filter(([, held]) => !held.own)
    for (const [, held] of shared) this.settle(held, view, true, undefined, thread)
    for (const [buffer] of shared) this.forget(buffer)
    arena.reset(view)
    for (const [, { buffer }] of shared) assert.equal(buffer.freed, true)
  }

  /**
   * A thread is about to close the shared pool, which frees its buffers there, except an arena's. Returns their
   * number and bytes.
   */
  leave(thread: SharedThread): Sum {
    const mine = [...this.held].filter(([, held]) => held.thread === thread && !held.own)
    const isArena = thread.front instanceof SharedArenaPool
    for (const [name, held] of mine) {
      this.settle(held, streamOf(held), true)
      if (isArena)
        held.thread = null // no thread can use it until the reset
      else this.forget(name)
    }
    return sumOf(mine.map(([, held]) => held))
  }

  /**
   * The buffers of a dead thread are about to be reclaimed; for null, those on their way. Returns their number and
   * bytes.
   */
  forgetAllOf(dead: SharedThread | null): Sum {
    const mine = [...this.held].filter(([, held]) => held.thread === dead)
    for (const [name] of mine) this.forget(name)
    return sumOf(mine.map(([, held]) => held))
  }

  /** Before a stream ends, each holder of a buffer that it uses announces or orders that use. */
  secureUsesOf(stream: number): void {
    for (const held of this.held.values()) {
      const uses = [...held.uses.keys()].filter(view => this.streams.isNamed(view, stream))
      if (uses.length > 0) this.settle(held, streamOf(held), true, uses)
    }
  }

  /** Asserts that a pool's statistics match the program. */
  compare(stats: PoolStats, isOf: (held: SharedHeld) => boolean, allocations: number): void {
    const { buffers, bytes } = sumOf([...this.held.values()].filter(isOf))
    const { liveBuffers, requestedBytes, frees } = stats
    assert.deepEqual(
      { liveBuffers, requestedBytes, allocations: stats.allocations, frees },
      { liveBuffers: buffers, requestedBytes: bytes, allocations, frees: allocations - buffers },
    )
    assert.ok(stats.liveBytes <= stats.reservedBytes && stats.reservedBytes <= stats.maxPoolBytes, 'all has its room')
  }

  /** The oracle learns of a free before the pool does. */
  private forget(name: number): void {
    this.driver.oracle.free(this.held.get(name)!.ptr)
    this.held.delete(name)
  }

  /**
   * Announces some or all uses of a buffer, or orders them before the next work of `on`. The host waits for uses of
   * dead threads.
   */
  private settle(
    held: SharedHeld,
    on: Stream | null,
    announce: boolean,
    views: Iterable<Stream> = held.uses.keys(),
    actor: SharedThread | null = held.thread,
  ): void {
    for (const used of [...views]) {
      const point = held.uses.get(used)!
      const isKnown = () => held.announced.has(used) || this.streams.isBefore(point, actor, on)
      if (isKnown()) continue
      const name = this.streams.nameOf(used)
      const canTell = held.thread !== null && !held.thread.isDead
      const told = canTell ? this.streams.view(held.thread!, name) : null
      const view = actor === null || actor.isDead ? null : this.streams.view(actor, name)
      if (told?.isShareable && (announce || view === null || on === null || on.closed)) {
        this.tell(held, told)
        held.announced.add(used)
      } else if (view !== null && on !== null && !on.closed) actor!.order(view, on)
      if (!isKnown()) this.maker.clocks.synchronize()
    }
  }

  private tell(held: SharedHeld, view: Stream): void {
    if (!view.isShareable && !held.own) {
      assert.throws(() => held.buffer.recordUse(view), PoolError)
      return
    }
    held.buffer.recordUse(view)
    held.announced.add(view)
  }

  /** The object of a stream in the thread that holds a buffer. */
  private viewFor(held: SharedHeld | undefined, stream: number): Stream | null {
    if (held === undefined || held.thread === null || held.thread.isDead) return null
    return this.streams.view(held.thread, stream)
  }

  private get isHost(): boolean {
    const { front } = this.maker
    return !(front instanceof SharedArenaPool) && 'memory' in front!
  }
}

function sumOf(held: readonly SharedHeld[]): Sum {
  return { buffers: held.length, bytes: held.reduce((sum, { bytes }) => sum + bytes, 0) }
}

/** The stream of a buffer; null for host memory. */
function streamOf({ buffer }: SharedHeld): Stream | null {
  return buffer instanceof DeviceBuffer ? buffer.stream : null
}

function addressOf(buffer: Buffer): number {
  return buffer instanceof DeviceBuffer ? buffer.ptr : buffer['block'].ptr
}
