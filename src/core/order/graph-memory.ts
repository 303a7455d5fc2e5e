import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { disposeOf } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import type { Clocks } from './clocks.js'
import type { Holding } from './holding.js'
import type { OrderedStream } from './ordered-stream.js'

/** Below all stamps, and no whole number, so that V8 keeps the field of a graph a float64. */
const NEVER = -0.5

/** A graph that shares memory with others. */
export interface SharingGraph {
  /** tells it apart from those, from 1 on */
  readonly number: number
  /** of its latest launch: the stream slot and the stamp, which is Infinity while the launch is under way */
  launchSlot: number
  launchStamp: number
}

/** Keeps launches apart whose graphs share memory. */
export interface LaunchRule {
  /** whether other threads launch such graphs: then no other thread enters before `leave` */
  readonly isShared: boolean
  /** the number of the graph that was launched last; 0 for none, and from `enter` until `leave` */
  readonly latest: number
  /** Work on an open stream uses the memory from now on, until the next launch. */
  noteUses(stream: OrderedStream): void
  /** `enter`, `stream.submit` and `leave` for the launch that `work` makes. One call, since launches must be cheap. */
  submit(graph: SharingGraph, stream: OrderedStream, work: (handle: number) => void): void
  /**
   * Makes `stream` wait for everything that used the memory before, and notes the launch of a graph, which the caller
   * submits next. Throws PoolError in the name of `call`, or the driver's error.
   */
  enter(call: string, graph: SharingGraph, stream: OrderedStream): void
  /** The launch was submitted, or the driver has refused it. Follows each `enter`. */
  leave(graph: SharingGraph, isLaunched: boolean): void
}

/**
 * The memory of a graph, which stays where it is until `close`. `pool.endCapture(stream)` makes it for a graph that
 * another library captured. That library's user calls `beforeLaunch` and `noteLaunch` at each launch, and `close` when
 * the graph is destroyed.
 */
export class GraphMemory implements SharingGraph, Disposable {
  private readonly launchedOn = new Set<OrderedStream>()
  /** of these, the stream of the latest launch */
  private latestStream: OrderedStream | null = null
  private open = true
  /** @internal */
  launchSlot = 0
  /** @internal */
  launchStamp = NEVER
  /** the stream of a launch that was announced by `beforeLaunch` */
  private announced: OrderedStream | null = null

  constructor(
    private readonly clocks: Clocks,
    private readonly holdings: ReadonlySet<Holding>,
    /** of a graph that shares memory with others */
    private readonly rule: LaunchRule | null,
    /**
     * the graph's number among those
     * @internal
     */
    readonly number: number,
  ) {}

  /**
   * Call before the graph is launched on `stream`. If it shares memory with other graphs, the stream waits for their
   * launches. Throws as `noteLaunch` does; the graph must not be launched then. Throws PoolError, too, for a group that
   * refuses launches whose order is not known, and CudaError if the driver refuses the wait.
   */
  beforeLaunch(stream: OrderedStream): void {
    this.check('beforeLaunch', stream)
    this.rule?.enter('beforeLaunch', this, stream)
    this.announced = stream
  }

  /**
   * Call after the graph was launched on `stream`: `close` then gives nothing back before the stream's work has
   * completed. Throws PoolError for a closed graph, stream or pool, or a stream of another device, and for a graph that
   * shares memory if `beforeLaunch(stream)` was not called, or if another one was launched since.
   */
  noteLaunch(stream: OrderedStream): void {
    this.note('noteLaunch', stream)
    if (this.rule === null) return
    if (this.announced !== stream) {
      throw new PoolError(
        'noteLaunch: the graph shares memory with others; call beforeLaunch(stream) before each launch',
        'ERR_STREAM_ORDER',
      )
    }
    this.announced = null
    if (this.rule.latest !== 0) {
      this.rule.noteUses(stream)
      throw new PoolError(
        'noteLaunch: another graph that shares the memory was launched since beforeLaunch, and may run beside this one; ' +
          'call beforeLaunch and noteLaunch right around each launch',
        'ERR_STREAM_ORDER',
      )
    }
    this.rule.leave(this, true)
  }

  /**
   * Checks a launch in the name of `call`, and notes its stream.
   * @internal
   */
  note(call: string, stream: OrderedStream): void {
    this.check(call, stream)
    if (stream === this.latestStream) return
    this.launchedOn.add(stream)
    this.latestStream = stream
  }

  /**
   * Launches the graph by `work`, after `note`.
   * @internal
   */
  submit(stream: OrderedStream, work: (handle: number) => void): void {
    if (this.rule === null) stream.submit('launch', work)
    else this.rule.submit(this, stream, work)
  }

  private check(call: string, stream: OrderedStream): void {
    if (!this.open) throw new PoolError(`${call}: the graph is closed; capture another`)
    for (const { lost, asleep } of this.holdings) {
      if (lost) {
        throw new PoolError(
          `${call}: a pool or buffer that the graph uses is closed, freed or shorter; capture it again`,
          'ERR_BUFFER_FREED',
        )
      }
      if (asleep) {
        throw new PoolError(
          `${call}: a pool or buffer that the graph uses is asleep; await its wake() first`,
          'ERR_POOL_ASLEEP',
        )
      }
    }
    if (typeof stream !== 'object' || stream === null || !('clocks' in stream && 'slot' in stream)) {
      throw new WrongTypeError(`${call}: stream must be a Stream, not ${describe(stream)}`)
    }
    if (stream.clocks !== this.clocks) {
      throw new PoolError(`${call}: the stream belongs to another device; pass one of this`, 'ERR_OTHER_DEVICE')
    }
    stream.checkOpen(call)
  }

  /**
   * Whether the graph needs this memory.
   * @internal
   */
  keeps(holding: Holding): boolean {
    return this.holdings.has(holding)
  }

  /**
   * The graph is destroyed. Its memory goes back to the pools once its launches have completed; memory of buffers
   * that are still held goes back when they are freed. A second close does nothing.
   */
  close(): void {
    if (!this.open) return
    this.open = false
    const streams = [...this.launchedOn]
    for (const holding of this.holdings) holding.release(streams)
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people: `GraphMemory { open }` or `GraphMemory { closed }`; console.log shows it. */
  toString(): string {
    return `GraphMemory { ${this.open ? 'open' : 'closed'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.clocks.context.ordinal, closed: !this.open }
  }
}

showAsText(GraphMemory)
