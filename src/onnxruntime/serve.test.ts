// A service without the library: the work asks the service's blocks for memory itself.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { inspect } from 'node:util'
import { MiB } from '../core/base/bytes.js'
import { OutOfMemoryError } from '../core/base/errors.js'
import { openDevice } from '../core/device/open.js'
import type { Pool } from '../core/pool/pool.js'
import { limited } from '../core/pool/wrappers/limited.js'
import type { Blocks } from './blocks.js'
import { ServedOnnxRuntime } from './serve.js'
import { StandInLibrary } from './stand-in.fixture.js'

describe('work in the name of a session', () => {
  const device = openDevice('simulated')
  after(() => device.close())

  function setUp(pool: Pool) {
    const served = new ServedOnnxRuntime(pool, new StandInLibrary().asLibrary(), 'stream', null, [])
    const { blocks } = served as unknown as { blocks: Blocks }
    return { served, failing: () => blocks.allocate(64 * MiB, null) }
  }

  it('is of a service that shows a line in a log', () => {
    using pool = device.createPool()
    const { served } = setUp(pool)
    assert.equal(inspect(served), 'ServedOnnxRuntime { 1.29.0, open }')
    served.close()
    assert.equal(JSON.stringify(served), '{"version":"1.29.0","closed":true}')
  })

  it('is refused before it begins if the name is too long for a label of the pool', async () => {
    using shared = device.createSharedPool()
    using own = device.createPool()
    const long = '😀'.repeat(15)
    let works = 0
    const work = () => works++
    const message = 'as: name must have at most 56 bytes of UTF-8 in a shared pool, not 60 B; shorten it'
    const { served } = setUp(own)
    for (const pool of [shared, limited(shared, 1 * MiB)]) {
      await assert.rejects(setUp(pool).served.as(long, work), { name: 'RangeError', message })
      await assert.rejects(served.as(long, work, { pool }), { name: 'RangeError', message })
    }
    assert.equal(works, 0)
    await served.as(long, work)
    await setUp(shared).served.as(long.slice(2), work)
    assert.equal(works, 2)
  })

  it('rejects with its own failure, also if the release of its session fails', async () => {
    using pool = device.createPool({ maxPoolBytes: 32 * MiB })
    const { served, failing } = setUp(pool)
    const cause = new Error('the session is in use')
    const work = () => {
      failing()
      return { run: async () => {}, release: () => Promise.reject(cause) }
    }
    await assert.rejects(served.as('model', work), error => error instanceof OutOfMemoryError && error.cause === cause)
  })

  it('releases a session only, not whatever result has a member of that name', async () => {
    using pool = device.createPool({ maxPoolBytes: 32 * MiB })
    const { served, failing } = setUp(pool)
    let releases = 0
    const release = async () => releases++
    for (const [result, count] of [
      [{ run: async () => {}, release }, 1],
      [{ release }, 0],
      [{ release: 'an output of the model' }, 0],
    ] as const) {
      releases = 0
      const work = () => {
        failing()
        return result
      }
      await assert.rejects(served.as<unknown>('model', work), OutOfMemoryError)
      assert.equal(releases, count)
    }
  })
})
