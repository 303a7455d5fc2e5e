import assert from 'node:assert/strict'
import { it } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import { loadKoffi } from '../core/libraries/koffi.js'
import { DeviceBlocks } from './blocks.js'
import { warmUp } from './warm-up.js'

it('a warm-up requests memory thousands of times, and gives all back', t => {
  using device = openDevice('simulated')
  using pool = device.createPool()
  using host = device.createHostPool()
  const allocate = t.mock.method(DeviceBlocks.prototype, 'allocate')
  const freeBytes = () => device.driver.cuMemGetInfo().freeBytes
  const before = freeBytes()
  warmUp(pool, loadKoffi())
  warmUp(host, loadKoffi())
  assert.ok(allocate.mock.callCount() > 2000)
  assert.ok(allocate.mock.calls.every(({ result }) => result !== 0))
  assert.deepEqual([freeBytes(), pool.stats().allocations, host.stats().allocations], [before, 0, 0])
})

it('a warm-up on a device that is full ends early', t => {
  using device = openDevice('simulated')
  using pool = device.createPool({ maxPoolBytes: '100%' })
  pool.reserve(device.driver.cuMemGetInfo().freeBytes - 2 * MiB)
  const warning = t.mock.method(process, 'emitWarning')
  const allocate = t.mock.method(DeviceBlocks.prototype, 'allocate')
  warmUp(pool, loadKoffi())
  const { calls } = allocate.mock
  assert.ok(calls.some(({ result }) => result === 0) && calls.length < 1000)
  assert.equal(warning.mock.callCount(), 0)
})

it('a warm-up in a capture does nothing', () => {
  using device = openDevice('simulated')
  using pool = device.createPool()
  using stream = device.createStream()
  stream.beginCapture()
  warmUp(pool, loadKoffi())
  stream.endCapture().close()
})
