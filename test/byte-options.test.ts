import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, KiB, MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { limited } from '../src/core/pool/wrappers/limited.js'
import { tagged } from '../src/core/pool/wrappers/tagged.js'
import { createStreamArenas } from '../src/kernel-memory/stream-arenas.js'

test('every option that takes bytes takes text with a unit', () => {
  const device = openDevice(new SimulatedDriver({ capacityBytes: '1GiB', granularityBytes: '2MiB' }))
  assert.equal(device.totalBytes, GiB)
  assert.equal(device.createArenaPool({ bytes: '1MiB', maxPoolBytes: '4MiB' }).maxPoolBytes, 4 * MiB)
  assert.equal(device.createBlockPool({ blockBytes: '4KiB', count: 2 }).blockBytes, 4 * KiB)
  assert.equal(device.createGrowableBuffer({ bytes: '1KiB', capacityBytes: '4MiB' }).capacityBytes, 4 * MiB)
  assert.equal(device.createHostPool({ maxPoolBytes: '2MiB', segmentBytes: '1MiB' }).stats().maxPoolBytes, 2 * MiB)
  assert.equal(device.createDriverPool({ maxPoolBytes: '64MiB' }).stats().maxPoolBytes, 64 * MiB)
  const pool = device.createPool({ maxPoolBytes: '64MiB' })
  assert.equal(limited(pool, '1MiB').maxPoolBytes, MiB)
  assert.equal(tagged(pool, { limits: { weights: '2MiB' } }).statsByTag()['weights'].maxPoolBytes, 2 * MiB)
  createStreamArenas(device, { pool, bytes: '64KiB' }).of(device.createStream())
  assert.equal(pool.stats().requestedBytes, 64 * KiB)
  assert.throws(() => limited(pool, 'x' as '1B'), { name: 'RangeError', message: /limited: maxPoolBytes must be/ })
  assert.throws(() => tagged(pool, { limits: { a: 'x' as '1B' } }), { message: /the limit of 'a' must be/ })
  device.close()
})

test('an argument that may be 0 says so', () => {
  using device = openDevice('simulated')
  const pool = device.createPool()
  const [buffer, other] = [pool.allocate(100), pool.allocate(100)]
  const from0 = { name: 'RangeError', message: /from 0 to 2\^53 - 1, not -1/ }
  assert.throws(() => buffer.write(new Uint8Array(1), -1), from0)
  assert.throws(() => buffer.readSync(-1), from0)
  assert.throws(() => buffer.copyFrom(other, -1), from0)
  assert.throws(() => pool.trimTo(-1), from0)
  assert.throws(() => pool.reserve(-1), from0)
  assert.throws(() => device.createPool({ leaveFreeBytes: -1 }), from0)
  assert.throws(() => device.createPool({ releaseThresholdBytes: -1 }), from0)
})
