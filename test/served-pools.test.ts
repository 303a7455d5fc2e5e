import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { openDevice } from '../src/index.js'
import { ask, ownRuntimeFolder } from '../src/live/live.fixture.js'
import { stopServing } from '../src/live/serve-all.js'

test('CUDA_MEMPOOL_SERVE=1 serves the pools of a program, and nothing is served without it', async () => {
  const runtime = ownRuntimeFolder()
  const socketPath = join(runtime.folder, `${process.pid}.sock`)
  const before = process.env['CUDA_MEMPOOL_SERVE']
  try {
    using device = openDevice('simulated')
    delete process.env['CUDA_MEMPOOL_SERVE']
    device.createPool()
    process.env['CUDA_MEMPOOL_SERVE'] = '1'
    const names = async () => {
      const { body } = await ask({ socketPath }, '/stats')
      return JSON.parse(body.toString()).pools.map((pool: { name: string }) => pool.name)
    }
    device.createPool()
    device.createArenaPool({ bytes: 4096 })
    device.createArenaQueue({ bytes: 4096, count: 2 })
    device.createHostPool()
    while (!existsSync(socketPath)) await new Promise(resolve => setImmediate(resolve))
    while ((await names()).length < 3) await new Promise(resolve => setImmediate(resolve))
    assert.deepEqual(await names(), ['caching', 'arena', 'host'])
  } finally {
    if (before === undefined) delete process.env['CUDA_MEMPOOL_SERVE']
    else process.env['CUDA_MEMPOOL_SERVE'] = before
    await stopServing()
    runtime.restore()
  }
})
