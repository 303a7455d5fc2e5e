// Every wrapper of this folder, alone and in every order of two; the recorder joins them in its own folder's tests.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { aligned } from './aligned.js'
import { withFallback } from './fallback.js'
import { limited } from './limited.js'
import type { Pool } from './pool.js'
import { TestDevice } from './pool-fixture.suite.js'
import { retrying } from './retrying.js'
import { statistics } from './statistics.js'
import { tagged } from './tagged.js'
import { WRAPPERS, wrapperSuite } from './wrapper.suite.js'

for (const [name, wrap] of Object.entries(WRAPPERS)) {
  wrapperSuite(name, [wrap])
  for (const [outerName, outer] of Object.entries(WRAPPERS)) wrapperSuite(`${name}, in ${outerName}`, [wrap, outer])
}

describe('wrappers', () => {
  it('refuse what is no pool by name', () => {
    const pool = new TestDevice().createPool()
    for (const bad of [null, undefined, 5, {}, { allocate() {} }] as unknown as Pool[]) {
      const wraps = [
        () => limited(bad, 1 * MiB),
        () => tagged(bad),
        () => statistics(bad),
        () => retrying(bad, () => false),
        () => aligned(bad, 512),
        () => withFallback(bad, pool),
      ]
      for (const wrap of wraps) {
        assert.throws(wrap, { name: 'TypeError', message: /^upstream must be a pool.*, not / }, `${wrap}`)
      }
      assert.throws(() => withFallback(pool, bad), { name: 'TypeError', message: /fallback must be a pool/ })
    }
  })
})
