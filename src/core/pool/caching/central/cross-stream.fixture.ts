// A pool with three streams on the simulated device, and what tests of the order between streams do with them.

import { MiB } from '../../../base/bytes.js'
import { Event } from '../../../order/event.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { TestDevice } from '../../pool.fixture.js'
import type { PoolOptions } from '../options.js'

export function setUp(options: PoolOptions = {}, capacityBytes = 64 * MiB) {
  const device = new TestDevice({ capacityBytes })
  const pool = device.createPool({ maxPoolBytes: 64 * MiB, ...options })
  const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
  return { device, pool, a, b, c }
}

/** `later` waits for all that was submitted to `earlier`. */
export function signal(earlier: Stream, later: Stream): void {
  using event = new Event(earlier.context)
  event.record(earlier)
  later.wait(event)
}

/** Used on its stream behind held work, and freed there; returns its address. */
export function freePending(device: TestDevice, buffer: DeviceBuffer): number {
  const { ptr, stream } = buffer
  device.hold(stream)
  buffer.fill(1)
  buffer.free()
  return ptr
}

/** Calls of the order of work that `action` made. */
export function orderCalls({ driver }: TestDevice, action: () => void): Record<string, number> {
  const names = ['cuEventRecord', 'cuEventQuery', 'cuStreamWaitEvent', 'cuEventSynchronize'] as const
  const before = names.map(name => driver.calls.get(name) ?? 0)
  action()
  const made = names.map((name, index) => [name, (driver.calls.get(name) ?? 0) - before[index]] as const)
  return Object.fromEntries(made.filter(([, count]) => count > 0))
}
