// Each mistake that debug mode finds, made and found, and programs without mistakes.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { KiB, MiB } from '../../base/bytes.js'
import { DebugError, type Fault } from '../../base/errors.js'
import { registerSimulatedKernel } from '../../driver/simulated-kernels.js'
import { Module } from '../../kernel/module.js'
import { Event } from '../../order/event.js'
import { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { DebugOptions } from '../caching/debug-options.js'
import { failingCallsSuite } from '../failing-calls.suite.js'
import { assertConsistent, TestDevice, twoDevices } from '../pool.fixture.js'
import { DebugPool } from './debug-pool.js'

const PTX = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry poke(.param .u64 target, .param .u32 offset) { ret; }`

registerSimulatedKernel('poke', ({ args, memory }) => {
  memory.store(args.pointer(0) + args.uint32(1), Uint8Array.of(1))
})

function setUp(debug: true | DebugOptions = true, maxPoolBytes = 64 * MiB) {
  const device = new TestDevice()
  const pool = device.createPool({ debug, maxPoolBytes })
  const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
  const kernel = new Module(device.context, device.defaultStream, PTX).kernel('poke')
  /** A kernel on `stream` that writes one byte, inside of the buffer or not. */
  const poke = (buffer: { readonly ptr: number }, offset: number, stream: Stream) =>
    kernel.launch({ grid: 1, block: 1, stream }, buffer, offset)
  return { device, pool, a, b, c, poke }
}

/** Orders the next work on `later` after all work submitted to `earlier`. */
function signal(earlier: Stream, later: Stream): void {
  using event = new Event(earlier.context)
  event.record(earlier)
  later.wait(event)
}

/** The line of this file that calls this function; call sites name lines of the built file, as stacks do. */
function here(): string {
  return /debug-pool\.test\.js:\d+/.exec(new Error().stack!.split('\n')[2])![0]
}

/** The fault that `action` throws. */
function faultOf(action: () => unknown, fault: Fault, message?: RegExp): DebugError {
  let found: unknown = null
  try {
    action()
  } catch (error) {
    found = error
  }
  assert.ok(found instanceof DebugError, `${fault} is found, not ${found}`)
  assert.equal(found.fault, fault, found.message)
  if (message !== undefined) assert.match(found.message, message)
  for (const site of Object.values(found.sites)) assert.ok(found.message.includes(site), 'the message has every site')
  return found
}

/** The warnings of the process that `action` causes. */
async function warningsOf(action: () => unknown): Promise<string[]> {
  const warnings: string[] = []
  const note = (warning: Error) => warnings.push(`${warning.name}: ${warning.message}`)
  const listeners = process.listeners('warning')
  process.removeAllListeners('warning') // Node's own listener would print them
  process.on('warning', note)
  try {
    await action()
    await turn() // warnings are emitted a moment later
  } finally {
    process.off('warning', note)
    for (const listener of listeners) process.on('warning', listener)
  }
  return warnings
}

describe('debug mode: writes out of bounds', () => {
  for (const [where, offset, message] of [
    ['behind the end, within the rounding', 1000, /byte 1000 was written, 1 past the end/],
    ['behind the end, in the redzone', 1250, /byte 1250 was written, 251 past the end/],
    ['before the start', -1, /byte -1 was written, 1 before the start/],
    ['at the start of the redzone', -256, /byte -256 was written, 256 before the start/],
  ] as const) {
    it(`${where} are found at the free, once, and the buffer is left as it is until then`, () => {
      const { pool, a, poke } = setUp()
      const place = here()
      const buffer = pool.allocate(1000, a) // on the line after `place`
      poke({ ptr: buffer.ptr + offset }, 0, a)
      const { sites } = faultOf(() => buffer.free(), 'outOfBounds', message) // three lines after `place`
      assert.deepEqual([lineOf(sites.allocatedAt), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 3])
      assert.equal(buffer.freed, false)
      assert.equal(buffer.readSync(999)[0], 0xff)
      assertConsistent(pool)
      buffer.free()
      assert.equal(pool.stats().liveBuffers, 0)
      assertConsistent(pool)
    })
  }

  it('the first byte on each side is found for every size and alignment, and no write inside the buffer is reported', () => {
    const { pool, a, poke } = setUp({ redzoneBytes: 512 })
    for (const [bytes, alignment] of [
      [1, undefined],
      [256, undefined],
      [1000, 4 * KiB],
      [1 * MiB + 1, 2 * MiB],
    ] as const) {
      for (const offset of [-1, bytes, -512, bytes + 511]) {
        const buffer = pool.allocate(bytes, a, alignment)
        assert.equal(buffer.ptr % (alignment ?? 256), 0)
        buffer.fill(7)
        poke({ ptr: buffer.ptr + offset }, 0, a)
        faultOf(() => buffer.free(), 'outOfBounds')
        buffer.free()
        const whole = pool.allocate(bytes, a, alignment)
        whole.fill(7)
        whole.free()
      }
    }
  })

  it('a write by pending work is found, since the free waits for it', () => {
    const { device, pool, a, b, poke } = setUp()
    for (const user of [a, b]) {
      const buffer = pool.allocate(1000, a)
      signal(a, b)
      device.hold(user)
      poke({ ptr: buffer.ptr + 1000 }, 0, user)
      buffer.recordUse(user)
      faultOf(() => buffer.free(), 'outOfBounds')
    }
  })

  it('damage around buffers that are never freed is in the report of close, and is a warning', async () => {
    const { pool, a, poke } = setUp()
    const buffer = pool.allocate(1000, a)
    poke({ ptr: buffer.ptr + 1000 }, 0, a)
    const warnings = await warningsOf(() => {
      const { faults, lostBuffers } = pool.close()
      assert.deepEqual([faults.map(({ fault }) => fault), lostBuffers], [['outOfBounds'], 1])
    })
    assert.match(warnings[0], /^DebugError: close: byte 1000/)
    assert.equal(warnings.length, 1)
  })
})

describe('debug mode: contents', () => {
  it('fresh memory is NaN, freed memory is filled in the order of the free', () => {
    const { device, pool, a } = setUp()
    const array = pool.allocateArray(Float32Array, 100, a)
    assert.ok(array.readSync().every(Number.isNaN))
    array.fill(0)
    const { ptr } = array
    array.free()
    const seen = new Uint8Array(400)
    a.synchronize()
    device.driver.cuMemcpyDtoH(seen, ptr)
    assert.ok(seen.every(byte => byte === 0x7f))
  })

  it('reused memory is filled as fresh again', () => {
    const { pool, a } = setUp({ quarantineBytes: 0 })
    const first = pool.allocate(4 * KiB, a)
    const { ptr } = first
    first.fill(1)
    first.free()
    const second = pool.allocate(4 * KiB, a)
    assert.equal(second.ptr, ptr)
    assert.ok(second.readSync().every(byte => byte === 0xff))
  })
})

describe('debug mode: writes after a free', () => {
  it('a write is found once when the memory leaves quarantine, with both call sites', () => {
    const { pool, a, poke } = setUp({ quarantineBytes: 1 * MiB })
    const place = here()
    const buffer = pool.allocate(1000, a)
    const { ptr } = buffer
    buffer.free()
    poke({ ptr: ptr + 500 }, 0, a)
    pool.allocate(1 * MiB - 64 * KiB, a).free()
    assert.equal(pool.stats().liveBuffers, 0)
    pool.allocate(64 * KiB, a).free()
    const { sites } = faultOf(() => pool.allocate(1000, a), 'writeAfterFree', /allocate: byte 500 was written after/)
    assert.deepEqual([lineOf(sites.allocatedAt), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 3])
    assertConsistent(pool)
    pool.allocate(1000, a).free()
    assert.deepEqual(pool.close().faults, [])
  })

  it('a write is found when memory runs out, by trimTo, and at close', async () => {
    for (const end of ['tryAllocate', 'trimTo', 'close'] as const) {
      const { pool, a, poke } = setUp({ quarantineBytes: Infinity }, 16 * MiB)
      const buffer = pool.allocate(2 * MiB, a)
      const { ptr } = buffer
      buffer.free()
      poke({ ptr: ptr + 2 * MiB - 1 }, 0, a)
      const message = new RegExp(`: byte ${2 * MiB - 1} was written after the free`)
      if (end === 'close') {
        const warnings = await warningsOf(() => assert.equal(pool.close().faults.length, 1))
        assert.match(warnings.join(), message)
        continue
      }
      faultOf(() => (end === 'trimTo' ? pool.trimTo(0) : pool.tryAllocate(15 * MiB, a)), 'writeAfterFree', message)
      assert.notEqual(pool.tryAllocate(15 * MiB, a), null)
    }
  })

  it('a block larger than the quarantine is inspected before its reuse, and evicts no other block', () => {
    const { pool, a, poke } = setUp({ quarantineBytes: 1 * MiB })
    const small = pool.allocate(1000, a)
    const smallPtr = small.ptr
    small.free()
    const large = pool.allocate(8 * MiB, a)
    const { ptr } = large
    large.free()
    poke({ ptr }, 5 * MiB, a)
    faultOf(() => pool.allocate(1000, a), 'writeAfterFree', /byte 5242880 was written after the free/)
    poke({ ptr: smallPtr }, 10, a)
    pool.allocate(8 * MiB, a).free()
    pool.allocate(1000, a).free()
    faultOf(() => pool.trimTo(0), 'writeAfterFree', /byte 10 was written after the free/)
    assertConsistent(pool)
  })

  it('a write to a redzone is found, on both sides', () => {
    for (const [offset, message] of [
      [-1, /byte -1 was written, 1 before the start, after the free/],
      [-256, /byte -256 was written, 256 before the start, after the free/],
      [1000, /byte 1000 was written, 1 past the end, after the free/],
      [1255, /byte 1255 was written, 256 past the end, after the free/],
    ] as const) {
      const { pool, a, poke } = setUp()
      const buffer = pool.allocate(1000, a)
      const { ptr } = buffer
      buffer.free()
      poke({ ptr: ptr + offset }, 0, a)
      faultOf(() => pool.trimTo(0), 'writeAfterFree', message)
    }
  })

  it('a request that cannot be served leaves the quarantine as it is', () => {
    const { pool, a } = setUp()
    pool.allocate(1 * MiB, a).free()
    const held = pool.allocate(40 * MiB, a)
    const { pendingBytes } = pool.stats()
    for (const bytes of [2 ** 53 - 1, 65 * MiB, 30 * MiB]) assert.equal(pool.tryAllocate(bytes, a), null)
    assert.equal(pool.stats().pendingBytes, pendingBytes)
    held.free()
  })

  it('quarantined memory counts as pending, and is reused before memory runs out', () => {
    const { pool, a, b } = setUp({ quarantineBytes: Infinity }, 16 * MiB)
    for (let count = 0; count < 3; count++) {
      pool.allocate(15 * MiB, count === 1 ? b : a).free()
      const { pendingBytes, liveBytes, reservedBytes } = pool.stats()
      assert.ok(pendingBytes > 15 * MiB && liveBytes === 0 && reservedBytes === 16 * MiB)
      assert.ok(pool.snapshot().ranges.some(({ blocks }) => blocks.some(({ state }) => state === 'pending')))
      assertConsistent(pool)
    }
    assert.equal(pool.tryAllocate(16 * MiB, a), null, 'the redzones have no room')
    assert.equal(pool.trimTo(0), 16 * MiB)
    assert.deepEqual([pool.stats().pendingBytes, pool.stats().reservedBytes], [0, 0])
    assertConsistent(pool)
  })

  it('a write is found in a block of a stream that was closed since', () => {
    const { device, pool, poke } = setUp({ quarantineBytes: Infinity })
    const short = device.createStream()
    const [first, second] = [pool.allocate(1000, short), pool.allocate(1000, short)]
    const { ptr } = first
    device.hold(short)
    first.free()
    short.close()
    second.free()
    assert.equal(pool.trimTo(0), 2 * MiB)
    assertConsistent(pool)
    const again = pool.allocate(1000)
    again.free()
    poke({ ptr }, 0, device.defaultStream)
    faultOf(() => pool.trimTo(0), 'writeAfterFree')
  })
})

describe('debug mode: uses after the free', () => {
  it('every kind of use names both call sites', () => {
    const { pool, a, poke } = setUp()
    const other = pool.allocate(100, a)
    const place = here()
    const buffer = pool.allocate(100, a)
    buffer.free()
    for (const use of [
      () => buffer.write(new Uint8Array(1)),
      () => buffer.readSync(),
      () => buffer.fill(1),
      () => other.copyFrom(buffer),
      () => poke(buffer, 0, a),
      () => buffer.recordUse(a),
      () => buffer.noteUse(a, 'my library'),
      () => buffer.free(),
      () => pool.free(buffer),
    ]) {
      const { sites } = faultOf(use, 'useAfterFree', /already freed/)
      assert.deepEqual([lineOf(sites.allocatedAt), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 2])
      assert.ok(lineOf(sites.usedAt!) > 0)
    }
    buffer[Symbol.dispose]()
  })

  it('a use after the pool is closed throws PoolError, as without debug mode', () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(100, a)
    pool.close()
    assert.throws(() => buffer.fill(0), { name: 'PoolError', message: /pool is closed/ })
  })
})

describe('debug mode: uses on another stream', () => {
  /** Uses of a buffer of `a` by work on `b`. */
  const uses: Record<string, (buffer: DeviceBuffer, b: Stream, order: ReturnType<typeof setUp>) => void> = {
    'a launch': (buffer, b, { poke }) => poke(buffer, 0, b),
    'a launch with a view': (buffer, b, { poke }) => poke({ ...viewOf(buffer) }, 0, b),
    'a copy': (buffer, b, { pool }) => pool.allocate(100, b).copyFrom(buffer),
    'a use that was noted': (buffer, b) => buffer.noteUse(b, 'my library'),
    'a free': (buffer, b) => buffer.free(b),
  }
  for (const [name, use] of Object.entries(uses)) {
    it(`${name} must come after the allocation`, () => {
      const ordered: Record<string, (order: ReturnType<typeof setUp>) => void> = {
        'an event since': ({ a, b }) => signal(a, b),
        'events over a third stream': ({ a, b, c }) => {
          signal(a, c)
          signal(c, b)
        },
        'the host': ({ a }) => a.synchronize(),
      }
      for (const [way, order] of Object.entries(ordered)) {
        const opened = setUp()
        const buffer = opened.pool.allocate(100, opened.a)
        order(opened)
        use(buffer, opened.b, opened)
        assert.ok(true, way)
      }
      const opened = setUp()
      const { a, b, pool } = opened
      signal(a, b) // before the allocation, so it does not order the buffer
      const place = here()
      const buffer = pool.allocate(100, a)
      signal(b, a) // the wrong direction
      const { sites } = faultOf(() => use(buffer, b, opened), 'useBeforeAllocation', /stream\.wait\(event\)/)
      assert.equal(lineOf(sites.allocatedAt), lineOf(place) + 1)
      assert.ok(lineOf((name === 'a free' ? sites.freedAt : sites.usedAt)!) > 0)
      assert.equal(buffer.freed, false)
      signal(a, b)
      use(buffer, b, opened)
    })
  }

  it('a use must be announced, or ordered before the free', () => {
    const good: Record<string, (buffer: DeviceBuffer, order: ReturnType<typeof setUp>) => void> = {
      announced: (buffer, { b }) => {
        buffer.recordUse(b)
        buffer.free()
      },
      'an event': (buffer, { a, b }) => {
        signal(b, a)
        buffer.free()
      },
      'freed there': (buffer, { b }) => buffer.free(b),
      'freed on a third stream': (buffer, { b, c }) => {
        signal(b, c)
        buffer.free(c)
      },
      'the host': (buffer, { b }) => {
        b.synchronize()
        buffer.free()
      },
    }
    for (const [way, free] of Object.entries(good)) {
      const opened = setUp()
      const buffer = opened.pool.allocate(100, opened.a)
      signal(opened.a, opened.b)
      opened.poke(buffer, 0, opened.b)
      free(buffer, opened)
      assert.ok(buffer.freed, way)
      assertConsistent(opened.pool)
    }
    const { pool, a, b, c, poke } = setUp()
    const buffer = pool.allocate(100, a)
    signal(a, b)
    signal(b, a) // before the use
    poke(buffer, 0, b)
    faultOf(() => buffer.free(), 'freeBeforeUse', /a use \(launch\) on stream .*recordUse/)
    const place = here()
    buffer.noteUse(b, 'my library')
    const { sites } = faultOf(() => buffer.free(), 'freeBeforeUse', /my library/)
    assert.deepEqual([lineOf(sites.usedAt!), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 2])
    assert.equal(buffer.freed, false)
    signal(a, c)
    faultOf(() => buffer.free(c), 'freeBeforeUse')
    buffer.recordUse(b)
    buffer.free()
  })

  it('the own stream is judged like any other if the free is on another stream', () => {
    const { pool, a, b } = setUp()
    const buffer = pool.allocate(100, a)
    signal(a, b)
    buffer.fill(1)
    faultOf(() => buffer.free(b), 'freeBeforeUse', /fill/)
    signal(a, b)
    buffer.free(b)
  })

  it('a free does not disturb announced work that is pending', () => {
    const { device, pool, a, b } = setUp()
    const [buffer, target] = [pool.allocate(100, a), pool.allocate(100, b)]
    buffer.fill(5)
    signal(a, b)
    device.hold(b)
    target.copyFrom(buffer)
    buffer.recordUse(b)
    buffer.free()
    assert.ok(target.readSync().every(byte => byte === 5))
  })

  it('streams made elsewhere are not judged; with `order: false` no stream is', () => {
    const { device, pool, a, poke } = setUp()
    const adopted = new Stream(device.clocks, device.driver.cuStreamCreate(1), false)
    const buffer = pool.allocate(100, a)
    poke(buffer, 0, adopted)
    buffer.free()
    const unjudged = setUp({ order: false })
    const other = unjudged.pool.allocate(100, unjudged.a)
    unjudged.poke(other, 0, unjudged.b)
    other.free(unjudged.c)
    const { pool: pool2, device: device2, a: a2, poke: poke2 } = setUp()
    faultOf(() => poke2(pool2.allocate(100, a2), 0, device2.defaultStream), 'useBeforeAllocation', /the default stream/)
  })

  it('an order by way of another device counts, but only after the wait', () => {
    const [device, peer] = twoDevices()
    const pool = device.createPool({ debug: true })
    const [a, b] = [device.createStream(), device.createStream()]
    const there = peer.createStream()
    const buffer = pool.allocate(1000, a)
    buffer.fill(1)
    using first = new Event(device.context)
    first.record(a)
    there.wait(first)
    using second = new Event(peer.context)
    second.record(there)
    faultOf(() => buffer.noteUse(b, 'kernel'), 'useBeforeAllocation')
    b.wait(second)
    buffer.noteUse(b, 'kernel')
    buffer.free(b)
    const later = pool.allocate(1000, a)
    faultOf(() => later.noteUse(b, 'kernel'), 'useBeforeAllocation')
    later.free()
  })

  it('a stream that a capture keeps idle is judged by its order before the capture', () => {
    const { device, pool, a } = setUp()
    const blocking = new Stream(device.clocks, device.driver.cuStreamCreate(0), false)
    const buffer = pool.allocate(1000, a)
    signal(a, device.defaultStream)
    buffer.noteUse(device.defaultStream, 'kernel')
    blocking.beginCapture()
    buffer.free(device.defaultStream)
    blocking.endCapture().close()
  })

  it('a pool that is not stream-ordered demands that the host has seen every use complete', () => {
    const device = new TestDevice()
    const pool = device.createPool({ debug: true, streamOrdered: false })
    const buffer = pool.allocate(100)
    buffer.fill(0)
    faultOf(() => buffer.free(), 'freeBeforeUse', /not stream-ordered.*synchronize/)
    device.defaultStream.synchronize()
    buffer.free()
  })

  it('the waits of the checks add no order that the program did not make', () => {
    const { pool, a, b, poke } = setUp()
    const held = pool.allocate(100, a)
    pool.allocate(100, a).free() // the check waits for a, the program does not
    faultOf(() => poke(held, 0, b), 'useBeforeAllocation')
  })
})

describe('debug mode: leaks', () => {
  it('live() and close list lost buffers with call sites, and warn on request', async () => {
    for (const warnOnLeak of [false, true]) {
      const { pool, a } = setUp({ warnOnLeak })
      const place = here()
      const held = [pool.allocate(1000, a), pool.allocate(3 * MiB, a)]
      pool.allocate(5).free()
      const lines = pool.live().map(({ byteLength, allocatedAt }) => [byteLength, lineOf(allocatedAt)])
      const line = lineOf(place) + 1
      assert.deepEqual(lines, [
        [1000, line],
        [3 * MiB, line],
      ])
      assert.equal(pool.live()[0].ptr, held[0].ptr)
      assert.equal(pool.live()[0].stream, a.handle)
      const warnings = await warningsOf(() => {
        const { lostBuffers, lostBytes, lost, faults } = pool.close()
        assert.deepEqual([lostBuffers, lostBytes, lost.length, faults], [2, 3 * MiB + 1000, 2, []])
        assert.equal(lineOf(lost[1].allocatedAt), line)
      })
      if (warnOnLeak) assert.match(warnings.join(), /^PoolWarning: 2 buffers of 3 MiB were held .*debug-pool\.test/)
      else assert.deepEqual(warnings, [])
      assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0, lost: [], faults: [] })
    }
  })

  it('a buffer that the garbage collector takes is a warning', async () => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const { pool, a, poke } = setUp({ warnOnLeak: true })
    const lose = () => {
      const buffer = pool.allocate(12_345, a)
      buffer.fill(1)
      poke(buffer, 0, a)
      pool.allocate(100, a).free()
    }
    const kept = pool.allocate(200, a)
    const found: string[] = []
    const warnings = await warningsOf(async () => {
      process.on('warning', warning => found.push(warning.message))
      lose()
      for (let round = 0; found.length === 0 && round < 1000; round++) {
        collect()
        await turn()
      }
    })
    assert.equal(warnings.length, 1)
    assert.match(warnings[0], /^PoolWarning: a buffer was lost without a free: 12\.06 KiB at 0x.*allocated at .*lose/)
    assert.equal(kept.freed, false)
    kept.free()
  })
})

describe('debug mode: sites', () => {
  it('call sites are remembered for one allocation in every `sites`', () => {
    const { pool, a } = setUp({ sites: 3 })
    for (let count = 0; count < 7; count++) pool.allocate(100, a)
    const known = pool.live().map(({ allocatedAt }) => allocatedAt.includes('debug-pool.test'))
    assert.deepEqual(known, [true, false, false, true, false, false, true])
    const none = setUp({ sites: 0 }).pool
    const buffer = none.allocate(100)
    buffer.free()
    faultOf(() => buffer.free(), 'useAfterFree', /allocated at a place that was not remembered/)
  })
})

describe('debug mode: the rest of a pool', () => {
  it('debug mode is a class of its own, and off by default', () => {
    const device = new TestDevice()
    assert.ok(device.createPool({ debug: true }) instanceof DebugPool)
    assert.ok(device.createPool({ debug: {} }) instanceof DebugPool)
    for (const options of [{}, { debug: false }]) assert.ok(!(device.createPool(options) instanceof DebugPool))
  })

  it('bad options are refused by name', () => {
    const device = new TestDevice()
    for (const [debug, kind, message] of [
      [5, 'TypeError', /debug must be true, false or an object/],
      [null, 'TypeError', /debug must be true, false or an object/],
      [{ site: 1 }, 'TypeError', /debug: unknown option 'site'; the options are sites, redzoneBytes/],
      [{ sites: -1 }, 'RangeError', /sites must be a whole number/],
      [{ redzoneBytes: 100 }, 'RangeError', /redzoneBytes must be a multiple of 256/],
      [{ redzoneBytes: 4 * MiB }, 'RangeError', /redzoneBytes/],
      [{ redzoneBytes: '256' }, 'RangeError', /redzoneBytes.*not '256'/],
      [{ quarantineBytes: -1 }, 'RangeError', /quarantineBytes/],
      [{ order: 1 }, 'TypeError', /order must be true or false/],
      [{ warnOnLeak: 'yes' }, 'TypeError', /warnOnLeak must be true or false/],
    ] as const) {
      if (debug === null) continue // null stands for an option left undefined
      assert.throws(() => device.createPool({ debug: debug as never }), { name: kind, message })
    }
  })

  it('deallocate takes the address of the buffer, and no other address of its block', () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(1000, a)
    const { ptr } = buffer
    for (const wrong of [ptr - 256, ptr + 1, ptr + 1000, 0, Number.NaN]) {
      assert.throws(() => pool.deallocate(wrong), { name: 'PoolError', message: /not the start of a live buffer/ })
    }
    pool.deallocate(ptr)
    faultOf(() => buffer.fill(0), 'useAfterFree')
    assert.throws(() => pool.deallocate(ptr), { name: 'PoolError' })
    assertConsistent(pool)
  })

  it('another device can be given access, and its work is not judged', () => {
    const [home, peer] = twoDevices()
    const pool = home.createPool({ debug: true })
    const stream = peer.createStream()
    const buffer = pool.allocate(1000)
    pool.setAccess(peer, 'readWrite')
    buffer.noteUse(stream, 'my library')
    peer.hold(stream)
    buffer.recordUse(stream)
    buffer.free()
    assertConsistent(pool)
    pool.allocate(1000).free(stream)
    pool.close()
    assert.equal(home.freeBytes(), home.totalBytes)
  })

  it('copies from and to pinned memory count as uses', () => {
    const { device, pool, a } = setUp()
    const pinned = device.createHostPool().allocate(100)
    const buffer = pool.allocate(100, a)
    pinned.copyTo(buffer)
    pinned.copyFrom(buffer)
    buffer.free()
    faultOf(() => pinned.copyTo(buffer), 'useAfterFree')
  })

  it('a free on a lost device succeeds without inspecting the memory', () => {
    const { device, pool, a } = setUp()
    const buffer = pool.allocate(1000, a)
    device.driver.failCall({ call: 'cuStreamSynchronize', nth: 1, code: 700, onwards: true })
    assert.throws(() => buffer.free(), { name: 'CudaError' })
    buffer.free()
    assert.equal(buffer.freed, true)
    pool.close()
  })
})

failingCallsSuite('caching pool in debug mode', {
  open: device =>
    device.createPool({ backing: 'virtual', debug: { quarantineBytes: 4 * MiB }, maxPoolBytes: 16 * MiB }),
  use(pool, attempts, device, b) {
    const a = device.defaultStream
    for (const stream of [a, b, a]) attempts.hold(() => pool.allocate(3 * MiB, stream))
    attempts.try(() => attempts.live[0]?.recordUse(b))
    attempts.try(() => attempts.live[0]?.free())
    attempts.try(() => attempts.live[0]?.free())
    attempts.hold(() => pool.allocate(100, b))
    for (const stream of [b, a]) attempts.hold(() => pool.allocate(4 * MiB, stream))
    attempts.try(() => attempts.live[1]?.free())
    attempts.try(() => pool.trimTo(0))
    attempts.hold(() => pool.allocate(1 * MiB, a))
  },
  takeAll(pool) {
    pool.trimTo(0)
    pool.allocate(15 * MiB).free()
  },
})

function lineOf(site: string): number {
  return Number(/debug-pool\.test\.js:(\d+)/.exec(site)?.[1])
}

/** A view of a whole buffer, built without its constructor. */
function viewOf(buffer: DeviceBuffer): { ptr: number; noteUse(stream: Stream, call: string): void } {
  return { ptr: buffer.ptr, noteUse: (stream, call) => buffer.noteUse(stream, call) }
}
