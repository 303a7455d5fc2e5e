// The results of calls on streams that another thread has lent, and then ends or captures. The clocks of all threads
// are in this thread.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { Context } from '../../driver/context.js'
import { Clocks } from '../../order/clocks.js'
import { Event } from '../../order/event.js'
import { signal } from '../../order/order.fixture.js'
import { Stream } from '../../order/stream.js'
import { ArenaPool } from '../arena/arena-pool.js'
import { SharedArenaPool } from '../arena/shared-arena-pool.js'
import { BlockPool } from '../blocks/block-pool.js'
import { makeCachingPool } from '../debug/make-caching-pool.js'
import { PlainPool } from '../driver-owned/plain-pool.js'
import { HostPool } from '../host/host-pool.js'
import { TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'
import { SharedPool } from '../shared/shared-pool.js'

type MakePool = (device: TestDevice, there: Clocks, defaultStream: Stream) => Pool

const POOLS: Record<string, MakePool> = {
  'caching pool': ({ totalBytes }, there, stream) => makeCachingPool(there, stream, {}, totalBytes),
  'shared pool': (device, there, stream) => {
    const { pool, server } = device.createSharedPool()
    return new SharedPool(there, stream, pool.share(), false, () => server.serve())
  },
  'block pool': (_, there, stream) => new BlockPool(there, stream, { blockBytes: 1 * MiB, count: 4 }),
  arena: (_, there, stream) => new ArenaPool(there, stream, { bytes: 32 * MiB }),
  'shared arena': (device, there, stream) => {
    const { pool } = device.createSharedArena({ bytes: 32 * MiB })
    return new SharedArenaPool(there, stream, pool.share(), false, () => {})
  },
  'plain pool': (_, there, stream) => new PlainPool(there, stream),
}

interface End {
  /** the message of the errors */
  readonly says: RegExp
  readonly end: (owner: Stream, gone: Clocks, device: TestDevice) => void
}

const ENDED = /^\w+: stream 0x\w+ is closed, here or where it was made; use an open one$/

const ENDS: Record<string, End> = {
  closed: { says: ENDED, end: owner => owner.close() },
  'of a dead thread': {
    says: ENDED,
    end: (_, gone, { clocks }) => {
      clocks.slots['registry'].bury(gone.slots.me)
      clocks.buryStreams()
    },
  },
  'in whose slot another one is': {
    says: ENDED,
    end: (owner, gone) => {
      const { slot } = owner
      owner.close()
      assert.equal(Stream.create(gone).slot, slot)
    },
  },
  captured: {
    says: /^\w+: stream 0x\w+ is being captured, .* in another thread; wait until that has ended$/,
    end: owner => owner.beginCapture('relaxed'),
  },
}

/** A thread that has a pool, a stream that a second thread lends, and a buffer of that. */
function setUp(makePool: MakePool) {
  const device = new TestDevice()
  const gone = new Clocks(Context.open(device.driver, 0), device.clocks.share())
  const there = new Clocks(Context.open(device.driver, 0), device.clocks.share())
  const borrow = (stream: Stream) => Stream.borrow(there, structuredClone(stream.share()))!
  const owner = Stream.create(gone)
  const [defaultStream, lent, other] = [borrow(device.defaultStream), borrow(owner), Stream.create(there)]
  const pool = makePool(device, there, defaultStream)
  pool.allocate(4096, lent).free() // is at hand for the next one
  const [buffer, source] = [pool.allocate(8192, lent), pool.allocate(8192, other)]
  const event = new Event(there.context)
  event.record(other)
  const host = HostPool.open(there, other, {}).allocate(4096)
  return { device, gone, owner, there, pool, lent, other, buffer, source, event, host }
}

type Calls = Record<string, (thread: ReturnType<typeof setUp>) => unknown>

const REFUSED: Calls = {
  'allocate what is at hand': ({ pool, lent }) => pool.allocate(4096, lent),
  'allocate what is not': ({ pool, lent }) => pool.allocate(300 * 1024, lent),
  'aligned allocate': ({ pool, lent }) => pool.allocate(4096, lent, 256),
  tryAllocate: ({ pool, lent }) => pool.tryAllocate(4096, lent),
  recordUse: ({ source, lent }) => source.recordUse(lent),
  write: ({ buffer }) => buffer.write(new Uint8Array(16)),
  writeSync: ({ buffer }) => buffer.writeSync(new Uint8Array(16)),
  readSync: ({ buffer }) => buffer.readSync(),
  fill: ({ buffer }) => buffer.fill(1),
  copyFrom: ({ buffer, source }) => buffer.copyFrom(source),
  copyFromSync: ({ buffer, source }) => buffer.copyFromSync(source),
  'copyFromSync of it': ({ buffer, source }) => source.copyFromSync(buffer),
  'copyTo of host memory': ({ host, buffer }) => host.copyTo(buffer, 0, 0, 16),
  'copyFrom to host memory': ({ host, buffer }) => host.copyFrom(buffer, 0, 0, 16),
  query: ({ lent }) => lent.query(),
  synchronize: ({ lent }) => lent.synchronize(),
  wait: ({ lent, event }) => lent.wait(event),
  record: ({ there, lent }) => new Event(there.context).record(lent),
  share: ({ lent }) => lent.share(),
  beginCapture: ({ lent }) => lent.beginCapture(),
  submit: ({ lent }) => lent.submit('submit', () => assert.fail('the driver is called')),
}

const WORKS: Calls = {
  'the free of its buffer': ({ buffer }) => buffer.free(),
  'that free in its name': ({ buffer, lent }) => buffer.free(lent),
  'the free of a buffer of another stream in its name': ({ source, lent }) => source.free(lent),
  'the free of an address': ({ pool, buffer }) =>
    'deallocate' in pool ? (pool as SharedPool).deallocate(buffer.ptr) : null,
  'its close': ({ lent }) => lent.close(),
}

for (const [poolName, makePool] of Object.entries(POOLS)) {
  for (const [endName, { says, end }] of Object.entries(ENDS)) {
    describe(`${poolName}: a lent stream ${endName}`, () => {
      const setUpEnded = () => {
        const thread = setUp(makePool)
        end(thread.owner, thread.gone, thread.device)
        return thread
      }

      it('is refused by each call with one error that names the stream', async () => {
        const thread = setUpEnded()
        const { buffer, lent } = thread
        for (const [name, call] of Object.entries(REFUSED)) {
          assert.throws(() => call(thread), { name: 'PoolError', message: says }, name)
        }
        await assert.rejects(buffer.read(), { name: 'PoolError', message: says })
        await assert.rejects(lent.finished(), { name: 'PoolError', message: says })
      })

      for (const [name, call] of Object.entries(WORKS)) {
        it(`leaves ${name} working`, () => {
          const thread = setUpEnded()
          call(thread)
          thread.pool.allocate(4096, thread.other).fill(1)
        })
      }
    })
  }
}

for (const name of ['caching pool', 'shared pool']) {
  it(`${name}: a stream that is closed in the middle of an allocation for it gets nothing`, () => {
    let meanwhile = () => {}
    const { owner, there, pool, lent } = setUp((device, ...rest) => {
      const { driver } = device
      const { cuStreamIsCapturing } = driver
      driver.cuStreamIsCapturing = handle => {
        const answer = cuStreamIsCapturing.call(driver, handle)
        meanwhile()
        return answer
      }
      return POOLS[name](device, ...rest)
    })
    const { liveBuffers } = pool.stats()
    meanwhile = () => {
      owner.clocks.slots['state'].pins.fill(0) // the two threads cannot wait for each other here
      owner.close()
      meanwhile = () => {}
    }
    assert.throws(() => pool.allocate(5 * MiB, lent), { name: 'PoolError', message: ENDED })
    assert.equal(pool.stats().liveBuffers, liveBuffers)
    assert.equal(pool.allocate(5 * MiB, Stream.create(there)).freed, false)
  })
}

describe('a stream that another thread lends', () => {
  it('is pinned while the driver is called for it, and by a call that fails', () => {
    const { there, lent } = setUp(POOLS['caching pool'])
    const pin = () => there.slots['state'].pins[there.slots.me]
    assert.equal(
      lent.submit('test', () => pin()),
      lent.slot + 1,
    )
    assert.equal(pin(), 0)
    assert.throws(() =>
      lent.submit('test', () => {
        throw new Error('refused')
      }),
    )
    assert.equal(pin(), 0)
  })

  it('that closes with pending work delays the reuse of memory freed later until the work has completed', () => {
    for (const makePool of [POOLS['caching pool'], POOLS['shared pool']]) {
      const { device, gone, owner, pool, buffer, other } = setUp(makePool)
      const before = Stream.create(gone)
      const release = device.hold(before)
      signal(before, owner)
      const { ptr } = buffer
      owner.close()
      buffer.free()
      const next = pool.allocate(8192, other)
      assert.ok(next.ptr !== ptr || !other.query(), 'its work comes first')
      release()
      assert.equal(other.query(), true)
    }
  })

  it('that is captured there gives its memory to others once earlier work has completed', () => {
    const { device, owner, pool, lent, other } = setUp((_, there, stream) =>
      makeCachingPool(there, stream, { maxPoolBytes: 8 * MiB }, 64 * MiB),
    )
    const buffer = pool.allocate(6 * MiB, lent)
    const release = device.hold(owner)
    owner.beginCapture('relaxed')
    buffer.free()
    pool.allocate(6 * MiB, other)
    assert.equal(other.query(), false)
    release()
    assert.equal(other.query(), true)
  })
})
