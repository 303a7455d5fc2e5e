// A service without the library: the work asks the service's blocks for memory itself.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { openDevice } from '../device/open.js'
import type { Pool } from '../pool/pool.js'
import { limited } from '../pool/wrappers/limited.js'
import type { OnnxRuntimeLibrary } from './library.js'
import { ServedOnnxRuntime } from './serve.js'

/** Accepts all calls of a service. */
const LIBRARY = {
  version: '1.29.0',
  path: '/nowhere',
  koffi: { register: () => 0n, pointer: () => null, proto: () => null },
  bind: () => () => 0,
  create: () => 1,
  check: () => {},
  call: () => 0,
  failure: () => null,
} as unknown as OnnxRuntimeLibrary

describe('work in the name of a session', () => {
  const device = openDevice('simulated')
  after(() => device.close())

  const serve = (pool: Pool) => new ServedOnnxRuntime(pool, LIBRARY, 'stream', null, [])

  it('is refused before it begins if the name is too long for a label of the pool', async () => {
    using shared = device.createPool({ shared: true })
    using own = device.createPool()
    const long = '😀'.repeat(15)
    let works = 0
    const work = () => works++
    const message = 'as: name must have at most 56 bytes of UTF-8 in a shared pool, not 60 B; shorten it'
    const served = serve(own)
    for (const pool of [shared, limited(shared, 1 * MiB)]) {
      await assert.rejects(serve(pool).as(long, work), { name: 'RangeError', message })
      await assert.rejects(served.as(long, work, { pool }), { name: 'RangeError', message })
    }
    assert.equal(works, 0)
    await served.as(long, work)
    await serve(shared).as(long.slice(2), work)
    assert.equal(works, 2)
  })
})
