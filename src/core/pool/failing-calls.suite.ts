// Every driver call of a workload fails in turn, once or from then on, and several fail at random. The pool must stay
// consistent, and held buffers must keep their contents. Afterwards all memory can be allocated again. A refused
// close can be repeated, and gives the device all of its memory back.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { OutOfMemoryError, PoolError } from '../base/errors.js'
import { Random } from '../base/random.js'
import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from './buffer.js'
import { isRefused, TestDevice } from './pool.fixture.js'
import type { Pool } from './pool.js'

const CAPACITY = 64 * 2 ** 20
const RANDOM_RUNS = 40
const RANDOM_REFUSALS = 6

/** The buffers that a workload holds, and how often the driver refused a call. */
class Attempts {
  refusals = 0
  private held: { buffer: DeviceBuffer; stamp: number }[] = []
  private stamps = 0

  /** Runs a step in which the driver may refuse a call. */
  try(step: () => void): void {
    if (isRefused(step, OutOfMemoryError)) this.refusals++
  }

  /** Fills and keeps a buffer. */
  hold(allocate: () => DeviceBuffer): void {
    this.try(() => {
      const held = { buffer: allocate(), stamp: -1 } // contents unknown
      this.held.push(held)
      const stamp = (++this.stamps % 255) + 1
      held.buffer.fill(stamp)
      held.stamp = stamp
    })
  }

  get live(): DeviceBuffer[] {
    this.held = this.held.filter(({ buffer }) => !buffer.freed)
    return this.held.map(({ buffer }) => buffer)
  }

  /** Reads the buffers without their own streams, one of which may be closed. */
  assertIntact(device: TestDevice): void {
    const driver = device.context.activate()
    const last = new Uint8Array(1)
    driver.cuCtxSynchronize()
    for (const { buffer, stamp } of this.held) {
      if (buffer.freed || stamp === -1) continue
      driver.cuMemcpyDtoH(last, buffer.ptr + buffer.byteLength - 1)
      assert.equal(last[0], stamp, 'contents kept')
    }
  }
}

interface Subject<P> {
  open(device: TestDevice): P
  /** Calls everything that the pool offers; `attempts` counts refusals. */
  use(pool: P, attempts: Attempts, device: TestDevice, other: Stream): void
  /** After all frees: asserts that all memory can be allocated again. */
  takeAll(pool: P): void
}

export function failingCallsSuite<P extends Pool & { check(): void; close(): unknown }>(
  name: string,
  { open, use, takeAll }: Subject<P>,
): void {
  const assertRecovers = (device: TestDevice, pool: P, attempts: Attempts) => {
    pool.check()
    assert.equal(pool.stats().liveBuffers, attempts.live.length, 'what was handed out is what is held')
    attempts.assertIntact(device)
    for (const buffer of attempts.live) buffer.free()
    assert.equal(pool.stats().liveBytes, 0)
    takeAll(pool)
    pool.check()
    pool.close()
    assert.equal(device.freeBytes(), CAPACITY)
  }
  const start = () => {
    const device = new TestDevice({ capacityBytes: CAPACITY })
    return { device, other: device.createStream(), pool: open(device), attempts: new Attempts() }
  }

  describe(`driver failures: ${name}`, () => {
    const opening = start().device.callCount
    const calls = (() => {
      const { device, pool, attempts, other } = start()
      use(pool, attempts, device, other)
      assert.equal(attempts.refusals, 0, 'nothing is refused when nothing fails')
      return device.callCount - opening
    })()

    for (const [failure, codeOf] of [
      ['out of memory', () => 2],
      ['another refusal', (nth: number) => (nth % 2 === 0 ? 1 : 999)],
    ] as const) {
      for (const onwards of [false, true]) {
        it(`${failure}, ${onwards ? 'from the n-th call on' : 'at the n-th call'}, for each of ${calls} calls`, () => {
          for (let nth = 1; nth <= calls; nth++) {
            const { device, pool, attempts, other } = start()
            device.driver.failCall({ call: '*', nth, code: codeOf(nth), onwards })
            use(pool, attempts, device, other)
            device.driver.clearFaults()
            try {
              assertRecovers(device, pool, attempts)
            } catch (error) {
              throw new Error(`after call ${nth} of ${calls} failed`, { cause: error })
            }
          }
        })
      }
    }

    it(`${RANDOM_REFUSALS} refusals at random lose nothing, seeds 1 to ${RANDOM_RUNS}`, () => {
      for (let seed = 1; seed <= RANDOM_RUNS; seed++) {
        const random = new Random(seed)
        const { device, pool, attempts, other } = start()
        for (let count = 0; count < RANDOM_REFUSALS; count++) {
          device.driver.failCall({ call: '*', nth: 1 + random.below(calls), code: random.below(2) === 0 ? 2 : 999 })
        }
        use(pool, attempts, device, other)
        device.driver.clearFaults()
        try {
          assertRecovers(device, pool, attempts)
        } catch (error) {
          throw new Error(`with seed ${seed}`, { cause: error })
        }
      }
    })

    it('a refused close can be repeated', () => {
      let reached = true
      for (let nth = 1; reached; nth++) {
        for (const onwards of [false, true]) {
          const { device, pool, attempts, other } = start()
          use(pool, attempts, device, other)
          device.driver.failCall({ call: '*', nth, code: 999, onwards })
          const before = device.callCount
          attempts.try(() => pool.close())
          reached = device.callCount - before >= nth
          device.driver.clearFaults()
          pool.close()
          assert.equal(device.freeBytes(), CAPACITY, `after call ${nth} of close failed`)
        }
      }
    })

    it('a pool that cannot be made leaks nothing', () => {
      const whole = new TestDevice({ capacityBytes: CAPACITY })
      const before = whole.callCount
      open(whole)
      const making = whole.callCount - before
      for (let nth = 1; nth <= making; nth++) {
        const device = new TestDevice({ capacityBytes: CAPACITY })
        device.driver.failCall({ call: '*', nth, code: 999 })
        isRefused(() => open(device).close(), PoolError)
        device.driver.clearFaults()
        assert.equal(device.freeBytes(), CAPACITY, `call ${nth}`)
      }
    })
  })
}
