// A pool on the simulated device, and captures of work on its streams.

import { MiB } from '../../../base/bytes.js'
import { Event } from '../../../order/event.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'
import type { PoolOptions } from '../options.js'

export const LIMIT = 64 * MiB

export function setUp(options: PoolOptions = {}) {
  const device = new TestDevice()
  const pool = device.createPool({ maxPoolBytes: LIMIT, ...options })
  const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
  return { device, pool, a, b, c }
}

export function signal(earlier: Stream, later: Stream): void {
  using event = new Event(earlier.context)
  event.record(earlier)
  later.wait(event)
}

export function capture(stream: Stream, work: () => void): Graph {
  stream.beginCapture()
  work()
  return stream.endCapture()
}

/** Free memory of the device once all pools have given back their idle memory. */
export function idleBytes(device: TestDevice, pool: CachingPool): number {
  pool.trimTo(0)
  assertConsistent(pool)
  return device.freeBytes()
}
