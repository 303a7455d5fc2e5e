// The fixture of tests of growable buffers: a buffer on a small simulated device, and the state that a refused call
// must not change.

import assert from 'node:assert/strict'
import { MiB } from '../base/bytes.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import type { GrowableBuffer, GrowableOptions } from './mapped/growable-buffer.js'
import { TestDevice } from './pool.fixture.js'

export const GRANULE = 2 * MiB

export function setUp(options: SimulatedOptions = {}, growable: Partial<GrowableOptions> = {}) {
  const device = new TestDevice(options)
  const stream = device.createStream()
  const buffer = device.createGrowableBuffer({ bytes: 1 * MiB, stream, ...growable })
  return { device, stream, buffer }
}

/** The driver calls that `work` made. */
export function callsDuring(device: TestDevice, work: () => void): Record<string, number> {
  const before = device.driver.calls
  work()
  const made = [...device.driver.calls].map(([call, count]) => [call, count - (before.get(call) ?? 0)] as const)
  return Object.fromEntries(made.filter(([, count]) => count > 0))
}

/** The state that a refused call must not change. */
function stateOf(device: TestDevice, buffer: GrowableBuffer) {
  buffer.check()
  const { ptr, byteLength, mappedBytes, capacityBytes } = buffer
  return { ptr, byteLength, mappedBytes, capacityBytes, freeBytes: device.freeBytes() }
}

export function assertRefused(device: TestDevice, buffer: GrowableBuffer, work: () => void, error: object): void {
  const before = stateOf(device, buffer)
  assert.throws(work, error)
  assert.deepEqual(stateOf(device, buffer), before)
}
