// Arenas over memory that another library has allocated.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'

const BYTES = 4 * MiB

function setUp() {
  const device = new TestDevice()
  const driver = device.context.activate()
  const ptr = driver.cuMemAlloc(BYTES)
  return { device, driver, ptr, over: { ptr, byteLength: BYTES } }
}

describe('arena over memory of others', () => {
  it('hands the memory out, and never frees it', () => {
    const { device, driver, over } = setUp()
    const arena = device.createArenaPool({ over })
    const used = device.freeBytes()
    for (let round = 1; round <= 2; round++) {
      const [first, rest] = [arena.allocate(KiB), arena.allocate(BYTES - KiB)]
      assert.deepEqual([first.ptr, rest.ptr], [over.ptr, over.ptr + KiB])
      assert.equal(arena.tryAllocate(1), null)
      rest.fill(round)
      assert.equal(rest.readSync(rest.byteLength - 1)[0], round)
      arena.reset()
    }
    const { reservedBytes, maxPoolBytes } = arena.stats()
    assert.deepEqual([reservedBytes, maxPoolBytes, arena.isRegistrable], [BYTES, BYTES, false])
    assert.deepEqual(arena.segments(), [{ ptr: over.ptr, bytes: BYTES }])
    arena.check()
    arena.close()
    assert.deepEqual([arena.stats().reservedBytes, device.freeBytes()], [0, used])
    driver.cuMemFree(over.ptr)
  })

  it('waits for its work before it closes, so that the memory can be freed then', () => {
    const { device, driver, over } = setUp()
    const arena = device.createArenaPool({ over })
    const stream = device.createStream()
    device.hold(stream)
    arena.allocate(1000, stream).fill(1)
    const told: string[] = []
    arena.observeSegments({
      ready: ({ bytes }) => told.push(`ready ${bytes}`),
      leaving: ({ bytes }) => told.push(`leaving ${bytes}, work complete: ${stream.query()}`),
    })
    arena.close()
    assert.deepEqual(told, [`ready ${BYTES}`, `leaving ${BYTES}, work complete: true`])
    driver.cuMemFree(over.ptr)
    driver.cuCtxSynchronize()
  })

  it('has the whole units of the memory', () => {
    const { device, ptr } = setUp()
    assert.equal(device.createArenaPool({ over: { ptr: ptr + 256, byteLength: 1000 } }).maxPoolBytes, 768)
  })

  it('is for its own device', () => {
    const device = new TestDevice({ devices: 2 })
    const peer = new TestDevice(device.driver, 1)
    const arena = device.createArenaPool({ over: { ptr: device.context.activate().cuMemAlloc(256), byteLength: 256 } })
    const message = /setAccess: the arena stands on memory that is no pool's; copy with copyFrom/
    assert.throws(() => arena.setAccess(peer, 'readWrite'), { name: 'PoolError', message })
    assert.equal(arena.allocate(1).reachableFrom(peer.context), false)
  })

  it('refuses what cannot be memory, by name and with the remedy', () => {
    const { device, ptr, over } = setUp()
    const at = (changes: object) => ({ over: { ...over, ...changes } })
    for (const [options, name, message] of [
      [{ over: 7 }, 'TypeError', /createArenaPool: over must be \{ ptr, byteLength \}, not 7/],
      [{ over: null }, 'TypeError', /over must be/],
      [at({ ptr: undefined }), 'TypeError', /over\.ptr must be a number, not undefined/],
      [at({ ptr: '0x7f00' }), 'TypeError', /over\.ptr must be a number/],
      [at({ ptr: BigInt(ptr) }), 'TypeError', /over\.ptr must be a number.*pass Number\(ptr\)/],
      [at({ ptr: ptr + 0.5 }), 'RangeError', /over\.ptr must be a whole number below 2\^53/],
      [at({ ptr: NaN }), 'RangeError', /over\.ptr must be a whole number/],
      [at({ ptr: 2 ** 53 }), 'RangeError', /over\.ptr must be a whole number below 2\^53/],
      [at({ ptr: 0 }), 'RangeError', /over\.ptr must be an address that is a multiple of 256, not 0/],
      [at({ ptr: -256 }), 'RangeError', /over\.ptr must be an address/],
      [at({ ptr: ptr + 128 }), 'RangeError', /over\.ptr .*multiple of 256.*shorten byteLength/],
      [at({ ptr: 2 ** 53 - 256 }), 'RangeError', /over\.byteLength must be from 256 to the length of the memory/],
      [at({ byteLength: 255 }), 'RangeError', /over\.byteLength must be from 256/],
      [at({ byteLength: 0 }), 'RangeError', /over\.byteLength/],
      [at({ byteLength: Infinity }), 'RangeError', /over\.byteLength must be a whole number/],
      [at({ byteLength: '4MiB' }), 'TypeError', /over\.byteLength must be a number/],
      [at({ byteLength: 2 ** 40 }), 'RangeError', /an arena has at most 511 GiB/],
      [{ over, bytes: 1 }, 'TypeError', /over and bytes exclude each other/],
      [{ over, maxPoolBytes: 1 }, 'TypeError', /over and maxPoolBytes exclude each other/],
      [{ over, backing: 'registrable' }, 'TypeError', /over and backing exclude each other/],
      [{ over, region: device.createPool().allocate(256) }, 'TypeError', /over and region exclude each other/],
    ] as const) {
      assert.throws(() => device.createArenaPool(options as never), { name, message })
    }
  })
})
