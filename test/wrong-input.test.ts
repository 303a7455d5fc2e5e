// Calls that a new user gets wrong: each is one error that names the argument and the remedy.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import { fallback } from '../src/core/pool/wrappers/fallback.js'
import { limited } from '../src/core/pool/wrappers/limited.js'
import { tagged } from '../src/core/pool/wrappers/tagged.js'
import { recorded } from '../src/recordings/trace/recording/recorder.js'

const typeError = (message: RegExp) => ({ name: 'TypeError', message })

describe('a wrong call', () => {
  it('copyFrom of other memory names the call to use', () => {
    using device = openDevice('simulated')
    const pool = device.createPool()
    const buffer = pool.allocate(16)
    for (const [source, message] of [
      [device.createHostPool().allocate(16), /not a HostBuffer; call source\.copyTo\(buffer\)/],
      [device.createHostPool().zeros(Uint8Array, 16), /not a HostArray; call source\.copyTo\(buffer\)/],
      [new Uint8Array(4), /not a Uint8Array; use write/],
      [null, /not null; use write/],
    ] as const) {
      assert.throws(() => buffer.copyFrom(source as never), typeError(message))
      assert.throws(() => buffer.copyFromSync(source as never), typeError(message))
    }
  })

  it('an offset of the wrong type is refused by name', async () => {
    using device = openDevice('simulated')
    const pool = device.createPool()
    const [buffer, other, host] = [pool.allocate(16), pool.allocate(16), device.createHostPool().allocate(16)]
    const offset = typeError(/: byteOffset must be a number of bytes, not 1n/)
    const sourceOffset = typeError(/: sourceOffset must be a number of bytes, not 1n/)
    await assert.rejects(buffer.read(1n as never), offset)
    assert.throws(() => buffer.readSync(1n as never), offset)
    assert.throws(() => buffer.fill(0, 1n as never), offset)
    for (const copy of [buffer.copyFrom, buffer.copyFromSync]) {
      assert.throws(() => copy.call(buffer, other, 0, 1n as never), sourceOffset)
    }
    assert.throws(() => host.copyTo(buffer, 0, 1n as never), sourceOffset)
    assert.throws(() => host.copyFrom(buffer, 0, 1n as never), sourceOffset)
  })

  it('share of a pool of one thread names the option', () => {
    using device = openDevice('simulated')
    const pools = [
      device.createPool(),
      device.createHostPool(),
      device.createArenaPool({ bytes: 1 * MiB }),
      device.createBlockPool({ blockBytes: 4096, count: 1 }),
    ]
    for (const pool of pools) {
      const share = () => (pool as unknown as { share(): void }).share()
      assert.throws(share, {
        name: 'PoolError',
        message: /share: the pool is one of this thread; make it with createShared(Host)?Pool/,
      })
    }
  })

  it('an unknown option of an import or export is refused before anything waits', async () => {
    using device = openDevice('simulated')
    const options = { timeout: 200 } as object
    await assert.rejects(device.importBuffer('/tmp/none', options), typeError(/importBuffer: unknown option 'timeout'/))
    await assert.rejects(device.importPool('/tmp/none', options), typeError(/importPool: unknown option 'timeout'/))
    const buffer = device.createInterprocessBuffer(100)
    await assert.rejects(buffer.exportTo('/tmp/none', options), typeError(/the options are timeoutMs/))
    const stream = 5 as never
    await assert.rejects(device.importBuffer('/tmp/none', { stream }), typeError(/stream must be a Stream/))
  })

  it('createDriverPool refuses null, and does not open the default pool for it', () => {
    using device = openDevice('simulated')
    assert.throws(
      () => device.createDriverPool(null as never),
      typeError(/createDriverPool: options must be an object/),
    )
  })

  it('a pool cannot be its own fallback', () => {
    using device = openDevice('simulated')
    const pool = device.createPool()
    assert.throws(() => fallback(pool, pool), typeError(/fallback: second is the pool itself/))
    fallback(limited(pool, 1 * MiB), pool)
  })

  it('recorded refuses options that it does not know', () => {
    using device = openDevice('simulated')
    const pool = device.createPool()
    const stack = { stack: true } as object
    assert.throws(
      () => recorded(pool, stack),
      typeError(/recorded: unknown option 'stack'; the options are stacks, stackMinBytes/),
    )
    assert.throws(
      () => recorded(pool, { stacks: '8' as never }),
      typeError(/stacks must be true, false or a number of frames, not '8'/),
    )
  })

  it('a size or a stream of the wrong type is refused by name', () => {
    using device = openDevice('simulated')
    const pools = [
      device.createPool(),
      device.createSharedPool(),
      device.createPlainPool(),
      device.createDriverPool(),
      device.createPool({ debug: true }),
      device.createArenaPool({ bytes: 1 * MiB }),
      device.createBlockPool({ blockBytes: 4096, count: 1 }),
      device.createHostPool(),
      limited(device.createPool(), 1 * MiB),
      tagged(device.createPool(), { limits: { weights: 1 * MiB } }),
    ]
    for (const pool of pools) {
      assert.throws(() => pool.allocate(100, null as never), typeError(/allocate: stream must be a Stream, not null/))
      assert.throws(() => pool.allocate(100n as never), typeError(/bytes must be a number of bytes, not 100n/))
    }
  })
})
