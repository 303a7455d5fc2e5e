import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import type { Pool } from '../src/core/pool/pool.js'
import type { FaultRule } from '../src/entries/simulated.js'
import type {
  Device,
  DeviceBuffer,
  Event,
  GraphGroup,
  GrowableBuffer,
  HostPool,
  HostPoolOptions,
  Stream,
} from '../src/index.js'

/** The buffers that went through a watched pool so far, and those that are held. */
export interface WatchedCounts {
  readonly allocations: number
  readonly liveBuffers: number
}

/** A machine for programs: a device, kernels that stamp memory, an order of work, and an oracle for grants. */
export interface Machine<Point> {
  readonly device: Device
  /** another device, whose streams can use the memory of this one */
  readonly peer: Device | null
  /** whether a stream can be destroyed behind the library's back, so that the next stream gets its handle */
  readonly recyclesHandles: boolean
  /** whether work can be captured */
  readonly captures: boolean
  /** An operation begins. */
  begin(): void
  /** An operation has ended; throws when contents are wrong. */
  end(): void
  /** Writes a stamp all over a buffer, or compares it. */
  stamp(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void
  compare(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void
  /** Keeps a stream busy, until the release of the oldest hold or for a while. */
  hold(stream: Stream): void
  /** Keeps the next copy of the library waiting, until the release of the oldest hold. */
  holdCopy(): void
  /** Returns false without a hold. */
  release(): boolean
  /** The driver refuses a call. */
  refuse(rule: FaultRule): void
  /** All work submitted to an open stream so far. */
  pointOf(stream: Stream): Point
  /** Whether a point comes before the next work of an open stream. */
  comesBefore(point: Point, later: Stream): boolean
  /** The user has ordered work, or has seen it complete. */
  recorded(event: Event, stream: Stream): void
  waited(stream: Stream, event: Event): void
  told(of: Event | Stream | Device): void
  /** A request is about to be made, of exactly `units`, or 0 for an uncounted request. */
  requested(pool: CachingPool, units: number, stream: Stream): void
  /**
   * The result of that request; with a group, memory that all graphs of the group may use, or if it `isOwn`, no other
   * graph.
   */
  granted(
    buffer: DeviceBuffer | null,
    pool: CachingPool,
    stream: Stream,
    group: GraphGroup | null,
    isOwn?: boolean,
  ): void
  /** A capture has ended, and no other graph of its group may use the memory of this buffer. */
  pinned(start: number): void
  /** A buffer is about to be freed after all work of these points, on the streams that the free names. */
  freed(start: number, covered: readonly Point[], pool: CachingPool | null, units: number): void
  /** The free was refused. */
  notFreed(start: number): void
  /** A growable buffer has another length from now on. */
  resized(buffer: GrowableBuffer, bytes: number): void
  /** Memory may leave its addresses from now on, or lies at all of them again. */
  fallsAsleep(memory: CachingPool | GrowableBuffer): void
  isAwake(memory: CachingPool | GrowableBuffer): void
  /** The same pool, for others that take memory from it; the machine sees their grants. */
  watch(pool: CachingPool): Pool & WatchedCounts
  /** A host pool whose grants the machine sees. */
  createHostPool(options: HostPoolOptions): HostPool
  /** The program has given everything back. */
  finish(): void
}
