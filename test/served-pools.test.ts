import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { openDevice, tagged } from '../src/index.js'
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
    type Named = { name: string; tags: object | null }
    const stats = async (): Promise<{ pools: Named[]; shelves: Named[] }> =>
      JSON.parse((await ask({ socketPath }, '/stats')).body.toString())
    const pools = async () => (await stats()).pools
    const names = async () => (await pools()).map(({ name }) => name)
    const pool = device.createPool()
    device.createArenaPool({ bytes: 4096 })
    device.createArenaQueue({ bytes: 4096, count: 2 })
    device.createShelf({ host: device.createHostPool() })
    tagged(pool).inScope('weights', () => pool.allocate(1))
    while (!existsSync(socketPath)) await new Promise(resolve => setImmediate(resolve))
    while ((await names()).length < 4) await new Promise(resolve => setImmediate(resolve))
    assert.deepEqual(await names(), ['caching', 'arena', 'arena-queue', 'host'])
    assert.deepEqual(Object.keys((await pools())[0].tags!), ['weights'])
    assert.deepEqual(
      (await stats()).shelves.map(({ name }) => name),
      ['shelf'],
    )
  } finally {
    if (before === undefined) delete process.env['CUDA_MEMPOOL_SERVE']
    else process.env['CUDA_MEMPOOL_SERVE'] = before
    await stopServing()
    runtime.restore()
  }
})
