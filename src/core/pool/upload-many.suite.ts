// The contract of `uploadMany`, of every pool and every wrapper: all arrays are on the device, or none.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import type { DeviceArray } from './array.js'
import { isRefused } from './pool.fixture.js'
import type { PoolUnderTest } from './pool.suite.js'

/** Bad lists, and what the error says behind the name of the call. */
const BAD_LISTS: readonly [unknown, 'RangeError' | 'TypeError', RegExp][] = [
  [undefined, 'TypeError', /: sources must be an array of typed arrays such as .*, not undefined$/],
  [new Float32Array(4), 'TypeError', /: sources must be an array .*, not a Float32Array$/],
  [[], 'RangeError', /: sources must have 1 to 1048576 sources, not 0$/],
  [[new Uint8Array(1), new Uint8Array(0)], 'RangeError', /: sources\[1\]: source is empty/],
  [[new Uint8Array(1), [1, 2]], 'TypeError', /: sources\[1\]: source must be a typed array/],
  [[new DataView(new ArrayBuffer(8))], 'TypeError', /: sources\[0\]: source must be a typed array/],
  [new Array(2), 'TypeError', /: sources\[0\]: source must be a typed array .*, not undefined$/],
]

const arrays = () => [Float32Array.of(1, 2, 3), Int32Array.of(-4), new Uint8Array(5000).fill(6)]

function assertContents(uploaded: readonly DeviceArray[]): void {
  for (const [index, array] of arrays().entries()) assert.deepEqual(uploaded[index].readSync(), array)
}

/** Runs the shared tests; `open` is called once for each of them, and for each driver call that fails. */
export function uploadManySuite(name: string, open: () => PoolUnderTest): void {
  describe(`uploadMany: ${name}`, () => {
    it('has the elements of each array on the device, whichever stream it is on', () => {
      const { device, pool, check } = open()
      for (const stream of [undefined, device.createStream()]) {
        const sources = arrays()
        const uploaded = pool.uploadMany(sources, stream)
        for (const source of sources) source.fill(0)
        assert.deepEqual(
          uploaded.map(({ buffer, length }) => [buffer.stream, length]),
          sources.map(({ length }) => [stream ?? pool.defaultStream, length]),
        )
        assertContents(uploaded)
        for (const array of uploaded) pool.free(array)
      }
      assert.equal(pool.uploadMany([Float32Array.of(1)], { label: 'one' })[0].label, 'one')
      assert.equal(pool.stats().liveBuffers, 1)
      check()
    })

    it('copies nothing if a list is bad, or an array goes meanwhile', () => {
      const { device, pool, check } = open()
      const before = [pool.stats(), device.calls('cuMemcpyHtoDAsync')]
      for (const [list, name, message] of BAD_LISTS) {
        const expected = { name, message: new RegExp(`^uploadMany${message.source}`) }
        assert.throws(() => pool.uploadMany(list as Float32Array[]), expected)
      }
      assert.throws(() => pool.uploadMany(arrays(), { streams: 1 } as object), { name: 'TypeError' })
      assert.deepEqual([pool.stats(), device.calls('cuMemcpyHtoDAsync')], before)
      const sources = arrays()
      const leaving = {
        get stream() {
          structuredClone(sources[1].buffer, { transfer: [sources[1].buffer] })
          return undefined
        },
      }
      const expected = { name: 'RangeError', message: /^uploadMany: sources\[1\] has changed from 4 to 0 bytes / }
      assert.throws(() => pool.uploadMany(sources, leaving), expected)
      assert.equal(pool.stats().liveBuffers, 0)
      assert.deepEqual(before.slice(1), [device.calls('cuMemcpyHtoDAsync')])
      check()
    })

    it('gives all back if one finds no room', () => {
      const { pool, check } = open()
      const sources = new Array<Uint8Array>(100).fill(new Uint8Array(3 * MiB))
      const message =
        /^uploadMany: no room for all of 300 MiB in 100 sources, so none is allocated; sources\[\d+\] found none/
      assert.throws(() => pool.uploadMany(sources), { name: 'OutOfMemoryError', message })
      assert.equal(pool.stats().liveBuffers, 0)
      check()
    })

    it('is all or nothing whichever driver call fails', () => {
      for (let nth = 1, isMet = true; isMet; nth++) {
        const { device, pool, check } = open()
        const stream = device.createStream()
        const before = device.callCount
        device.driver.failCall({ call: '*', nth, code: 999 })
        let uploaded: DeviceArray[] = []
        const isFailed = isRefused(() => {
          uploaded = pool.uploadMany(arrays(), stream)
        }, OutOfMemoryError)
        isMet = device.callCount - before >= nth
        device.driver.clearFaults()
        if (!isFailed) assertContents(uploaded)
        assert.equal(pool.stats().liveBuffers, isFailed ? 0 : 3, `call ${nth}`)
        for (const array of uploaded) array.free()
        pool.allocate(64 * KiB).free()
        check()
      }
    })
  })
}
