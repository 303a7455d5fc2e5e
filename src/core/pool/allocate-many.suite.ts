// The contract of `allocateMany` and `tryAllocateMany`, of every pool and every wrapper: all sizes are served, or none.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import type { DeviceBuffer } from './buffer.js'
import { isRefused } from './pool.fixture.js'
import type { PoolUnderTest } from './pool.suite.js'

const VERBS = ['allocateMany', 'tryAllocateMany'] as const
/** No pool under test has room for the last but one. The blocks of block pools have 3 MiB. */
const TOO_MUCH = [3 * MiB, 3 * MiB - 300, 2 ** 40, 4 * KiB]
/** For tests that repeat it often: pools in debug mode fill and compare all bytes. */
const SMALL_TOO_MUCH = [64 * KiB, 2 ** 40, 4 * KiB]

function listWithGetter(): number[] {
  return Object.defineProperty([4096, 4096], 1, {
    get: () => {
      throw new Error('gone')
    },
  })
}

const { proxy: revoked, revoke } = Proxy.revocable<number[]>([], {})
revoke()
const endless = new Proxy<number[]>([], { get: (_, name) => (name === 'length' ? 2 ** 32 : 1) })

/** Bad lists, and what the error says behind the name of the call. */
const BAD_LISTS: readonly [unknown, 'RangeError' | 'TypeError', RegExp][] = [
  [undefined, 'TypeError', /: sizes must be an array of sizes such as \[4096, '1MiB'\], not undefined$/],
  [4096, 'TypeError', /: sizes must be an array .*, not 4096$/],
  ['4096', 'TypeError', /: sizes must be an array .*, not '4096'$/],
  [{ length: 1, 0: 4096 }, 'TypeError', /: sizes must be an array .*, not an Object$/],
  [new Float64Array(2), 'TypeError', /: sizes must be an array .*, not a Float64Array$/],
  [revoked, 'TypeError', /: sizes must be an array .*revoked/],
  [[], 'RangeError', /: sizes must have 1 to 1048576 sizes, not 0$/],
  [new Array(2 ** 32 - 1), 'RangeError', /: sizes must have 1 to 1048576 sizes, not 4294967295$/],
  [endless, 'RangeError', /: sizes must have 1 to 1048576 sizes, not 4294967296$/],
  [[4096, 4096, 4096, -1, 4096], 'RangeError', /: sizes\[3\] must be/],
  [[4096, 0.5], 'RangeError', /: sizes\[1\] must be/],
  [[4096, '64 apples'], 'RangeError', /: sizes\[1\] must be/],
  [[4096, null], 'TypeError', /: sizes\[1\] must be/],
  [[4096, [4096]], 'TypeError', /: sizes\[1\] must be/],
  [new Array(3), 'TypeError', /: sizes\[0\] must be/],
  [listWithGetter(), 'TypeError', /: sizes\[1\] cannot be read: gone$/],
]

/** Runs the shared tests; `open` is called once for each of them, and for each driver call that fails. */
export function allocateManySuite(name: string, open: () => PoolUnderTest): void {
  describe(`allocateMany: ${name}`, () => {
    it('serves all sizes in their order, on one stream', () => {
      const { device, pool, check } = open()
      const stream = device.createStream()
      for (const verb of VERBS) {
        const plain = pool[verb]([1 * MiB, '64 KiB', 300], stream)!
        assert.deepEqual(
          plain.map(({ byteLength }) => byteLength),
          [1 * MiB, 64 * KiB, 300],
        )
        for (const buffer of plain) assert.ok(buffer.stream === stream && buffer.pool === pool)
        const [first, second] = pool[verb]([4 * KiB, 300], { stream, alignment: 4096, label: 'batch' })!
        assert.deepEqual([first.label, second.label, first.ptr % 4096, second.ptr % 4096], ['batch', 'batch', 0, 0])
        assert.equal(new Set([...plain, first, second].map(({ ptr }) => ptr)).size, 5)
        for (const buffer of [...plain, first, second]) buffer.free()
        assert.equal(pool[verb]([1])![0].stream, pool.defaultStream)
      }
      assert.equal(pool.stats().liveBuffers, 2)
      check()
    })

    it('gives all back if one finds no room, and its error is of all', () => {
      const { pool, check } = open()
      using _held = pool.allocate(2 * MiB)
      const { liveBuffers, liveBytes, requestedBytes } = pool.stats()
      assert.throws(
        () => pool.allocateMany(TOO_MUCH),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError && error.remedy !== 'raiseLimit', String(error))
          assert.match(error.message, /^allocateMany: no room for all of 1 TiB in 4 sizes, so none is allocated; sizes/)
          assert.match(error.message, /sizes\[2\] found none, with 4 KiB still to come: no room for 1 TiB/)
          const { figures } = error
          assert.equal(figures.requestedBytes, 2 ** 40 + 6 * MiB - 300 + 4 * KiB)
          // A pool of powers of two has rounded each of 3 MiB up to 4.
          const isWithoutThem = figures.liveBytes >= 0 && figures.liveBytes < liveBytes + 3 * MiB
          assert.ok(isWithoutThem, `${figures.liveBytes} live`)
          return true
        },
      )
      assert.equal(pool.tryAllocateMany(TOO_MUCH), null)
      const after = pool.stats()
      assert.deepEqual(
        [after.liveBuffers, after.liveBytes, after.requestedBytes],
        [liveBuffers, liveBytes, requestedBytes],
      )
      for (const buffer of pool.allocateMany([3 * MiB, 3 * MiB, 2 * MiB])) buffer.free()
      check()
    })

    it('refuses a bad list by the name of its entry, and allocates nothing', () => {
      const { pool, check } = open()
      const before = pool.stats()
      for (const [list, name, message] of BAD_LISTS) {
        for (const verb of VERBS) {
          assert.throws(() => pool[verb](list as number[]), { name, message: new RegExp(`^${verb}${message.source}`) })
        }
      }
      const refused: readonly unknown[] = [null, 5, { streams: 1 }, { label: 5 }, { alignment: 3 }]
      for (const place of refused) {
        assert.throws(() => pool.allocateMany([4096, 4096], place as object), { name: /^(Type|Range)Error$/ })
      }
      assert.deepEqual(pool.stats(), before)
      check()
    })

    it('loses nothing when a driver call fails', () => {
      const count = failEachCall(open, false, ({ pool, check }, held, message) => {
        assert.equal(pool.stats().liveBuffers, held.length, message)
        for (const buffer of held) buffer.free()
        for (const buffer of pool.allocateMany([64 * KiB, 1 * KiB, 64 * KiB])) buffer.free()
        assert.equal(pool.stats().liveBytes, 0)
        check()
      })
      assert.ok(count > 0)
    })

    it('loses nothing but until the close when all driver calls fail from then on', t => {
      const warn = t.mock.method(process, 'emitWarning', () => {})
      failEachCall(open, true, ({ device, pool, close }, held, message) => {
        const warnings = warn.mock.callCount()
        attempt(() => pool.allocateMany(SMALL_TOO_MUCH)) // a pool of another device now gives back what it could not lend
        assert.equal(pool.stats().liveBuffers, held.length + warnings, message)
        close()
        assert.equal(device.freeBytes(), device.totalBytes, message)
        warn.mock.resetCalls()
      })
    })
  })
}

/**
 * Refuses each driver call of a program in turn, once or from then on. `after` gets what the program holds, and which
 * call it was. Returns how many calls there were.
 */
function failEachCall(
  open: () => PoolUnderTest,
  onwards: boolean,
  after: (opened: PoolUnderTest, held: readonly DeviceBuffer[], message: string) => void,
): number {
  for (let nth = 1; ; nth++) {
    const opened = open()
    const { device, pool } = opened
    const before = device.callCount
    device.driver.failCall({ call: '*', nth, code: 999, onwards })
    const held = attempt(() => pool.allocateMany([64 * KiB, 1 * KiB, 64 * KiB])) ?? []
    attempt(() => pool.allocateMany(SMALL_TOO_MUCH))
    const met = device.callCount - before >= nth
    device.driver.clearFaults()
    after(opened, held, `call ${nth}`)
    if (!met) return nth - 1
  }
}

/** The result of `work`, or null if it found no memory or the driver refused. */
function attempt<R>(work: () => R): R | null {
  let result: R | null = null
  isRefused(() => {
    result = work()
  }, OutOfMemoryError)
  return result
}
