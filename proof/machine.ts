import type { FaultRule } from '../src/driver/simulated/index.js'
import type { Device, DeviceBuffer, Event, Stream } from '../src/index.js'
import type { CachingPool } from '../src/pool/caching/caching-pool.js'

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
  release(): void
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
  closed(stream: Stream): void
  /** A request is about to be made, of exactly `units`; 0 if it is not counted. */
  requested(pool: CachingPool, units: number, stream: Stream): void
  /** The result of that request. */
  granted(buffer: DeviceBuffer | null, pool: CachingPool, stream: Stream): void
  /** A buffer is about to be freed after all work of these points, on the streams that the free names. */
  freed(start: number, covered: readonly Point[], pool: CachingPool, units: number): void
  /** The program has given everything back. */
  finish(): void
}
