import { WrongTypeError } from '../../../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../../../base/byte-size.js'
import { describe } from '../../../base/bytes.js'
import { disposeOf } from '../../../base/disposal.js'
import { type OutOfMemoryError, PoolError } from '../../../base/errors.js'
import { checkFlag, checkOptionNames } from '../../../base/option-names.js'
import { showAsText } from '../../../base/readable.js'
import { MAX_UNITS, UNIT_BYTES } from '../../../heap/size-classes.js'
import { Capture, type CaptureMode, captureWork } from '../../../order/capture.js'
import type { Clocks } from '../../../order/clocks.js'
import type { Graph } from '../../../order/graph.js'
import { checkStreamOf, type Stream } from '../../../order/stream.js'
import type { BufferOwner } from '../../allocation.js'
import type { DeviceBuffer } from '../../buffer.js'
import { ofThisThread } from '../../transferred-buffer.js'
import { choice } from '../options.js'
import { checkScratchArena, type ScratchArena } from './arena-scratch.js'
import type { GroupConfig } from './graph-groups.js'
import { GraphOutput, OutputAllocation, type OutputLifetime, type OutputPool } from './graph-output.js'
import type { GroupCaptures, SharedGraphGroup } from './group-captures.js'
import { closedGroup, secondCapture } from './group-errors.js'

/** Options of `pool.createGraphGroup`. */
export interface GraphGroupOptions {
  /**
   * a launch that may run beside an earlier launch waits for it on the device ('wait', the default), or throws
   * PoolError ('refuse')
   */
  readonly whenUnordered?: 'wait' | 'refuse'
  /** the most that the group may reserve (the pool's limit) */
  readonly maxBytes?: ByteSize
  /**
   * fills the scratch before each launch, which shows graphs that rely on contents of an earlier launch (false). It
   * takes as long as a fill of that memory
   */
  readonly poison?: boolean
  /**
   * an `ArenaPool` of this thread and device that captures of the group allocate from, too, each from its present
   * height on. Until the group is closed, the arena serves these captures alone
   */
  readonly arena?: ScratchArena
}

/** Options of `pool.beginCapture`. */
export interface CaptureOptions {
  /** the group of the pool whose memory the capture takes; without it the graph has memory of its own */
  readonly group?: GraphGroup
}

/** Counters of a graph group. */
export interface GraphGroupStats {
  /** device memory that all graphs use in turn, in bytes */
  readonly scratchBytes: number
  /** device memory for outputs of their own, in bytes */
  readonly ownBytes: number
  /** bytes of buffers between the scratch that are still held: a capture allocated them, and not as outputs */
  readonly pinnedBytes: number
  /** graphs that can be launched */
  readonly graphs: number
  /** launches so far */
  readonly launches: number
  /** how often a launch, or a use of an output, made its stream wait */
  readonly waits: number
}

/** The part of a caching pool that its groups use. */
export interface GroupPool extends OutputPool {
  readonly clocks: Clocks
  allocate(bytes: number, stream: Stream): DeviceBuffer
  /** as `CachingPool.change` */
  change<R>(call: string, work: () => R): R
}

/**
 * The options with their defaults, and sizes in bytes. Throws TypeError or RangeError for bad options, and PoolError
 * for an arena that cannot be lent.
 */
export function groupConfig(options: GraphGroupOptions, clocks: Clocks, deviceBytes: number): GroupConfig {
  checkOptionNames('createGraphGroup', options, ['whenUnordered', 'maxBytes', 'poison', 'arena'])
  const { whenUnordered = 'wait', maxBytes, poison = false, arena = null } = options
  checkFlag('createGraphGroup: poison', poison)
  const refuses = choice(whenUnordered, 'createGraphGroup: whenUnordered', ['wait', 'refuse']) === 'refuse'
  const most = Math.min(deviceBytes, MAX_UNITS * UNIT_BYTES)
  const bytes = maxBytes === undefined ? most : bytesOf(maxBytes, 'createGraphGroup: maxBytes', clocks.context)
  if (arena !== null) checkScratchArena('createGraphGroup', arena, clocks)
  return { refuses, maxBytes: Math.min(bytes, most), isLimited: bytes < most, poison, arena }
}

/**
 * Graphs that use the same memory in turn. Captures of a group share scratch: the next capture gets all that one has
 * freed. Launches of the group never overlap: a launch that may run beside an earlier one waits for it on the device.
 * Made by `pool.createGraphGroup()`.
 */
export class GraphGroup implements BufferOwner, Disposable {
  /** Made by `pool.createGraphGroup(options)`. */
  constructor(
    private readonly pool: GroupPool,
    private readonly captures: GroupCaptures,
    /** the error for scratch that there is no room for */
    private readonly noRoom: (bytes: number) => OutOfMemoryError,
  ) {}

  /** Tells the groups of a pool apart, from 1 on: recordings name the group's memory so. */
  get number(): number {
    return this.captures.number
  }

  /** True after `close`. */
  get closed(): boolean {
    const { closed, lost } = this.captures.store
    return closed || lost
  }

  /**
   * Captures the work that `work` submits to `stream` as a graph of the group, as `device.capture` does. Memory that
   * the capture allocates and frees is scratch: its contents are undefined at the start of each launch. Allocate
   * results by `allocateOutput`. Another buffer that is still held at the end is valid as an output of its own, and
   * pinned between the scratch. Throws PoolError for such a buffer where earlier graphs of the group write, and while
   * another capture of the group is under way.
   */
  capture<R>(stream: Stream, work: () => R, mode?: CaptureMode): Graph<R> {
    return captureWork(stream, work, () => this.begin('capture', stream, mode))
  }

  /** Begins a capture that ends by `stream.endCapture()`; see `capture`. */
  beginCapture(stream: Stream, mode?: CaptureMode): void {
    this.begin('beginCapture', stream, mode)
  }

  /**
   * A buffer for results of the capture that is under way. A 'shared' one is valid from a launch of its graph until
   * another graph of the group is launched. It costs no memory of its own, and ends with the scratch, which goes back
   * after the last graph was closed. An 'own' one is valid until its own graph is launched again; free it, too, if the
   * capture fails. The next launch waits for uses by calls of this library; announce others by `recordUse`. Throws
   * PoolError unless `stream` is captured by this group, and OutOfMemoryError.
   */
  allocateOutput(bytes: number, stream: Stream, lifetime: OutputLifetime = 'shared'): GraphOutput {
    const { captures, pool } = this
    this.checkOpen('allocateOutput')
    checkStreamOf('allocateOutput', stream, pool.clocks)
    choice(lifetime, 'allocateOutput: lifetime', ['shared', 'own'])
    const { capture } = captures
    if (capture === null || stream.capture !== capture) {
      throw new PoolError(
        'allocateOutput: the stream is not captured by this group; call it in the work of group.capture(stream, work)',
      )
    }
    captures.nextUse = lifetime
    let block: DeviceBuffer
    try {
      block = pool.allocate(bytes, stream)
    } finally {
      captures.nextUse = 'scratch'
    }
    return new GraphOutput(new OutputAllocation(pool, this, captures, capture, block, lifetime), 0)
  }

  /**
   * Takes scratch from the device until there are `bytes`, so that captures need not. Throws OutOfMemoryError if a
   * limit or the device do not allow it. Without virtual memory the new scratch is one part.
   */
  reserve(bytes: ByteSize): void {
    this.checkOpen('reserve')
    const least = bytesOf(bytes, 'reserve: bytes', this.pool.context)
    this.checkAwake('reserve')
    const { store } = this.captures
    if (this.pool.change('reserve', () => store.reserve(least))) return
    try {
      throw this.noRoom(least)
    } finally {
      store.isFull = false
    }
  }

  /** Gives unused memory back to the device; returns the bytes. 0 while graphs are open, or work is under way. */
  trim(): number {
    this.checkOpen('trim')
    return this.pool.change('trim', () => this.captures.store.giveBack())
  }

  /**
   * A small descriptor for other threads, whose `pool.attachGraphGroup(shared)` gives the same group there. Throws
   * PoolError for a group of `createPool`.
   */
  share(): SharedGraphGroup {
    this.checkOpen('share')
    const { shared } = this.captures
    if (shared !== null) return shared
    throw new PoolError('share: the pool of the group is one of this thread; make it with createSharedPool')
  }

  /** The group's memory and launches. A group that threads shared has none of them once it is closed. */
  stats(): GraphGroupStats {
    const { order, shared, store } = this.captures
    const isGone = shared !== null && this.closed // another group may have its place in the table
    const { launches, waits } = isGone ? { launches: 0, waits: 0 } : order
    return { ...store.figures(), launches, waits }
  }

  /**
   * Ends the group. Its memory goes back once its last launch has completed, and held buffers are freed; the pool's
   * next call that gives memory back sees to the rest. Throws PoolError while graphs are open, or a capture is under
   * way. A second close does nothing, nor does a close after the pool's.
   */
  close(): void {
    if (!this.closed) this.pool.change('close', () => this.captures.store.close())
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /**
   * Takes an output back, as `output.free(stream)` does.
   * @internal
   */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    ;(buffer as GraphOutput).allocation.end(stream)
  }

  /**
   * Throws PoolError: outputs stay in the thread of their graph.
   * @internal
   */
  handOver(): never {
    if (this.captures.shared === null) throw ofThisThread()
    throw new PoolError('transfer: an output stays in the thread of its graph; copy it to a buffer of the pool')
  }

  /** One line for people, such as `GraphGroup { 3 graphs, open }`; console.log shows it. */
  toString(): string {
    return `GraphGroup { ${countOf(this.stats().graphs)}, ${this.closed ? 'closed' : 'open'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { number: this.number, device: this.pool.context.ordinal, closed: this.closed, ...this.stats() }
  }

  /** @internal */
  isOf(pool: object): boolean {
    return this.pool === pool
  }

  private begin(call: string, stream: Stream, mode?: CaptureMode): void {
    this.check(call, stream)
    Capture.begin(call, stream, mode, this.captures)
  }

  /**
   * For a capture of another library; see `pool.beginCapture`.
   * @internal
   */
  announce(stream: Stream): void {
    this.check('beginCapture', stream)
    Capture.announce(stream, this.captures)
  }

  private check(call: string, stream: Stream): void {
    this.checkOpen(call)
    checkStreamOf(call, stream, this.pool.clocks)
    stream.checkOpen(call)
    stream.checkCapturable(call)
    this.checkAwake(call)
    if (this.captures.capture !== null) throw secondCapture(call)
  }

  private checkAwake(call: string): void {
    if (this.pool.isGuarded) this.pool.checkUse(call)
  }

  private checkOpen(call: string): void {
    this.pool.checkOpen(call)
    if (this.closed) throw closedGroup(call)
  }
}

showAsText(GraphGroup)

function countOf(graphs: number): string {
  return graphs === 1 ? '1 graph' : `${graphs} graphs`
}

/** Throws TypeError for anything but a group, and PoolError for one of another pool. */
export function groupOf(group: GraphGroup, pool: object): GraphGroup {
  if (!(group instanceof GraphGroup)) {
    throw new WrongTypeError(`beginCapture: group must be a GraphGroup, not ${describe(group)}`)
  }
  if (group.isOf(pool)) return group
  throw new PoolError('beginCapture: the group is of another pool; call beginCapture of that one')
}
