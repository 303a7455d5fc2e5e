// Spillable buffers on a GPU: contents after many spills and returns on several streams. Fails without a GPU.

import assert from 'node:assert/strict'
import { randomFillSync } from 'node:crypto'
import { after, describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import { HostPool } from '../host/host-pool.js'
import { isFilled } from '../pool.fixture.js'
import { spillable } from './spillable.js'

const gpu = new GpuDevice()
after(() => gpu.close())

describe('spillable buffers on a GPU', () => {
  it('keep every byte while they move', async () => {
    using host = HostPool.open(gpu.clocks, gpu.defaultStream, { maxPoolBytes: 256 * MiB })
    using pool = gpu.createPool()
    using set = spillable(pool, { host, maxPoolBytes: 16 * MiB })
    const streams = [gpu.createStream(), gpu.createStream()]
    const held = Array.from({ length: 12 }, () => {
      const bytes = randomFillSync(new Uint8Array(4 * MiB))
      const buffer = set.allocate(bytes.length, streams[0])
      {
        using here = buffer.use(streams[0])
        here.write(bytes)
      }
      return { buffer, bytes }
    })
    for (let round = 0; round < 4; round++) {
      const stream = streams[round % 2]
      for (const { buffer, bytes } of held) {
        using here = buffer.use(stream, { writes: false })
        assert.ok(Buffer.from(await here.read()).equals(bytes), `round ${round}`)
      }
    }
    const { spilledBytes, spills } = set.stats()
    assert.ok(spills > 40, `${spills} spills`)
    assert.ok(spilledBytes <= 48 * MiB, 'buffers that are only read are copied once')
    set.close()
    for (const stream of streams) stream.close()
  })

  it('stay on the device while their pool sleeps', async () => {
    using host = HostPool.open(gpu.clocks, gpu.defaultStream, { maxPoolBytes: 64 * MiB })
    using pool = gpu.createPool({ backing: 'virtual' })
    using set = spillable(pool, { host })
    const buffer = set.allocate(8 * MiB)
    {
      using here = buffer.use()
      here.fill(7)
    }
    await pool.sleep()
    assert.throws(() => buffer.spill(), { name: 'PoolError', message: /^spill: the pool is asleep/ })
    await pool.wake()
    buffer.spill()
    using here = buffer.use()
    assert.ok(isFilled(here.readSync(), 7))
  })
})
