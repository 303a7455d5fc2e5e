// A pool is closed while a stream is captured. The wait for all work would break the capture, so `close` throws
// before it changes anything. The captures are of this thread, of another thread, and of another library.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CU_STREAM_CAPTURE_MODE_GLOBAL } from '../../driver/constants.js'
import { Context } from '../../driver/context.js'
import { ThreadState } from '../../driver/simulated/thread-state.js'
import { Clocks } from '../../order/clocks.js'
import { Stream } from '../../order/stream.js'
import { TestDevice, twoDevices } from '../pool.fixture.js'
import type { Pool } from '../pool.js'

interface AnyPool {
  allocate(bytes: number): { free(): void; freed: boolean }
  stats(): object
  trimTo?(bytes: number): number
  readonly closed: boolean
  close(): unknown
}

const KINDS: Record<string, (device: TestDevice) => AnyPool> = {
  'caching pool': device => device.createPool({ backing: 'virtual' }),
  'caching pool of segments': device => device.createPool({ backing: 'segments' }),
  'debug pool': device => device.createPool({ debug: true, maxPoolBytes: 32 * MiB }),
  'block pool': device => device.createBlockPool({ blockBytes: 4096, count: 16 }),
  arena: device => device.createArenaPool({ bytes: 1 * MiB }),
  'plain pool': device => device.createPlainPool(),
  'driver pool': device => device.createDriverPool(),
  'host pool': device => device.createHostPool(),
  'shared pool': device => device.createSharedPool().pool,
  'shared block pool': device => device.createSharedBlocks({ blockBytes: 4096, count: 16 }).pool,
  'shared arena': device => device.createSharedArena({ bytes: 1 * MiB }).pool,
  'shared host pool': device => device.createSharedHost().pool,
}

interface SomeCapture {
  /** the message of the refusal */
  readonly says: RegExp
  end(): void
}

const ANNOUNCED = /^close: a stream is being captured \(stream 0x\w+\), .*; end the capture in its thread first, then/

function captureOf(stream: Stream): SomeCapture {
  stream.beginCapture()
  return { says: ANNOUNCED, end: () => stream.endCapture().close() }
}

const CAPTURES: Record<string, (device: TestDevice) => SomeCapture> = {
  'of this thread': device => captureOf(device.createStream()),
  'of another thread': ({ driver, clocks }) =>
    captureOf(Stream.create(new Clocks(Context.open(driver, 0), clocks.share()))),
}

/** Begun by another library in another thread. The refused wait breaks it. */
function foreignCapture(device: TestDevice): SomeCapture {
  const { driver } = device
  const thread = new ThreadState()
  const { handle, context } = device.createStream()
  driver.actAs(thread, () => {
    driver.cuCtxSetCurrent(context.handle)
    driver.cuStreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_GLOBAL)
  })
  const end = () => assert.throws(() => driver.actAs(thread, () => driver.cuStreamEndCapture(handle)))
  return { says: /^close: a stream of device 0 is being captured, .*; end the capture first, then close again$/, end }
}

for (const [kind, create] of Object.entries(KINDS)) {
  describe(`${kind}: beside a capture`, () => {
    for (const [whose, begin] of Object.entries({ ...CAPTURES, 'of another library': foreignCapture })) {
      it(`${whose}, a close is refused, changes nothing, and works when the capture has ended`, () => {
        const device = new TestDevice()
        const pool = create(device)
        const buffer = pool.allocate(1000)
        const before = pool.stats()
        const { says, end } = begin(device)
        assert.throws(() => pool.close(), { name: 'PoolError', message: says })
        assert.deepEqual([pool.closed, buffer.freed, pool.stats()], [false, false, before])
        end()
        buffer.free()
        pool.close()
        assert.equal(pool.closed, true)
        assert.equal(device.freeBytes(), device.totalBytes)
      })
    }

    for (const [whose, begin] of Object.entries(CAPTURES)) {
      it(`${whose}, a trim leaves the capture valid`, () => {
        const device = new TestDevice()
        const pool = create(device)
        pool.allocate(1000).free()
        const { end } = begin(device)
        pool.trimTo?.(0)
        end()
        pool.close()
        assert.equal(device.freeBytes(), device.totalBytes)
      })
    }

    it('of a thread that has died, a close works', () => {
      const device = new TestDevice()
      const pool = create(device)
      const gone = new Clocks(Context.open(device.driver, 0), device.clocks.share())
      const stream = Stream.create(gone)
      stream.beginCapture()
      gone.slots['registry'].bury(gone.slots.me)
      pool.close()
      assert.ok(pool.closed)
    })
  })
}

/** Pools whose memory another device may use. */
const OPEN_TO_PEERS: Record<string, (device: TestDevice) => Pool & Pick<AnyPool, 'closed' | 'close'>> = {
  'caching pool': device => device.createPool({ backing: 'virtual' }),
  'caching pool of segments': device => device.createPool({ backing: 'segments' }),
  'debug pool': device => device.createPool({ debug: true, maxPoolBytes: 32 * MiB }),
  'block pool': device => device.createBlockPool({ blockBytes: 4096, count: 16 }),
  arena: device => device.createArenaPool({ bytes: 1 * MiB }),
  'arena that grows': device => device.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 16 * MiB }),
  'plain pool': device => device.createPlainPool(),
  'driver pool': device => device.createDriverPool(),
}

describe('a close beside a capture of a device with access', () => {
  for (const [kind, create] of Object.entries(OPEN_TO_PEERS)) {
    it(`is refused, and leaves the pool usable: ${kind}`, () => {
      const [device, peer] = twoDevices()
      const pool = create(device)
      pool.setAccess(peer, 'readWrite')
      const buffer = pool.allocate(1000)
      assert.ok(buffer.reachableFrom(peer.context)) // a driver pool remembers who asked
      pool.allocate(1000).recordUse(peer.createStream())
      const before = pool.stats()
      const { says, end } = captureOf(peer.createStream())
      assert.throws(() => pool.close(), { name: 'PoolError', message: says })
      assert.deepEqual([pool.closed, buffer.freed, pool.stats()], [false, false, before])
      pool.allocate(1000).fill(1)
      assert.equal(buffer.readSync().length, 1000)
      end()
      pool.close()
      assert.equal(pool.closed, true)
      assert.equal(device.freeBytes(), device.totalBytes)
    })
  }

  it('is refused, and leaves the buffer usable: growable buffer', () => {
    const [device, peer] = twoDevices()
    const buffer = device.createGrowableBuffer({ bytes: 2 * MiB, capacityBytes: 16 * MiB })
    buffer.setAccess(peer, 'readWrite')
    const { says, end } = captureOf(peer.createStream())
    assert.throws(() => buffer.allocation.close(), { name: 'PoolError', message: says })
    assert.equal(buffer.freed, false)
    buffer.grow(4 * MiB)
    assert.equal(buffer.readSync().length, 4 * MiB)
    end()
    buffer.allocation.close()
    assert.equal(device.freeBytes(), device.totalBytes)
  })

  it('is refused, and leaves the pool usable: host pool', () => {
    const [device, peer] = twoDevices()
    peer.context.enablePeerAccess(device.context)
    const pool = device.createHostPool()
    const { says, end } = captureOf(peer.createStream())
    assert.throws(() => pool.close(), { name: 'PoolError', message: says })
    pool.allocate(1000).free()
    end()
    pool.close()
    assert.equal(pool.closed, true)
  })
})
