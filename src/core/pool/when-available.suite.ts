// How `whenAvailable` refuses and ends a wait, in each kind of pool that has it.

import assert from 'node:assert/strict'
import { it } from 'node:test'
import type { ByteSize } from '../base/byte-size.js'
import { MiB } from '../base/bytes.js'
import type { DeviceBuffer } from './buffer.js'
import type { WaitOptions } from './wait-options.js'

interface WaitingPool {
  maxPoolBytes: ByteSize
  allocate(bytes: number): DeviceBuffer
  whenAvailable(bytes: number, options?: WaitOptions): Promise<void>
  close(): unknown
}

/** Declares the tests. `open` makes a pool of 8 MiB. */
export function waitsThatEnd(open: () => WaitingPool): void {
  it('is refused if it could never end, ends with the pool, and can be given up', async () => {
    const pool = open()
    await assert.rejects(pool.whenAvailable(9 * MiB), { name: 'OutOfMemoryError', message: /raise maxPoolBytes/ })
    await assert.rejects(pool.whenAvailable(0), { name: 'RangeError', message: /whenAvailable: bytes/ })
    for (const [options, message] of [
      [{ signal: 5 }, /^whenAvailable: signal must be an AbortSignal, not 5/],
      [{ signal: null }, /^whenAvailable: signal must be an AbortSignal, not null/],
      [null, /^whenAvailable: options must be an object such as { signal }, not null/],
      [{ signals: 5 }, /^whenAvailable: unknown option 'signals'.* did you mean signal\?/],
    ] as const) {
      await assert.rejects(pool.whenAvailable(1, options as never), { name: 'TypeError', message })
    }
    pool.allocate(8 * MiB)
    const controller = new AbortController()
    const given = pool.whenAvailable(1 * MiB, { signal: controller.signal })
    const next = pool.whenAvailable(1 * MiB)
    controller.abort()
    await assert.rejects(given, { name: 'AbortError' })
    pool.close()
    await assert.rejects(next, { name: 'PoolError', message: /^whenAvailable: the pool is closed/ })
  })
  it('can be given up before its turn', { timeout: 5_000 }, async t => {
    const pool = open()
    t.after(() => pool.close()) // ends waits that would not
    const held = pool.allocate(8 * MiB)
    const first = pool.whenAvailable(1 * MiB)
    const controller = new AbortController()
    const { signal } = controller
    const given = Array.from({ length: 20 }, () => assert.rejects(pool.whenAvailable(1, { signal }), /mine/))
    const last = pool.whenAvailable(8 * MiB)
    controller.abort(new Error('mine'))
    await Promise.all(given)
    await assert.rejects(pool.whenAvailable(1, { signal }), /mine/)
    held.free()
    await Promise.all([first, last])
  })

  it('ends if the limit sinks below the request, and so lets the next one wait', { timeout: 5_000 }, async t => {
    const pool = open()
    t.after(() => pool.close()) // ends waits that would not
    const held = pool.allocate(4 * MiB)
    const refused = assert.rejects(pool.whenAvailable(6 * MiB), { name: 'OutOfMemoryError', message: /limit 4 MiB/ })
    const next = pool.whenAvailable(3 * MiB)
    pool.maxPoolBytes = 4 * MiB
    await refused
    held.free()
    await next
  })
}
