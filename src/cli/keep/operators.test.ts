// Kept memory as operators meet it: in the error of a full device, in `info`, and in the figures of a served process.
// The keeper is a process of its own, at the place where programs look for it.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, beforeEach, describe, it } from 'node:test'
import { GiB, MiB } from '../../core/base/bytes.js'
import { OutOfMemoryError } from '../../core/base/errors.js'
import type { Device } from '../../core/device/device.js'
import { openDevice } from '../../core/device/open.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { Actor } from '../../core/keeper/keeper.fixture.js'
import { usualSocketPath } from '../../core/keeper/socket-path.js'
import { newPoolListeners } from '../../core/pool/new-pools.js'
import { type Keep, openKeep } from '../../keep/keep.js'
import { type ProcessStats, statsOf } from '../../live/process-stats.js'
import { prometheusText } from '../../live/prometheus.js'
import { parseMetrics } from '../../live/prometheus-parser.fixture.js'
import { PoolList } from '../../live/watched-pools.js'
import { MAIN } from '../command-line.fixture.js'

const BYTES = 32 * MiB

describe('kept memory', {
  skip: process.platform !== 'linux' && `works on Linux, not on ${process.platform}`,
}, () => {
  const folder = mkdtempSync(join(tmpdir(), 'kept-'))
  const env = { ...process.env, XDG_RUNTIME_DIR: folder, CUDA_MEMPOOL_SIMULATED: join(folder, 'machine') }
  const runtime = process.env['XDG_RUNTIME_DIR']
  let keeper: Actor
  let device: Device
  let keep: Keep
  before(async () => {
    process.env['XDG_RUNTIME_DIR'] = folder
    mkdirSync(join(folder, 'cuda-mempool'), { mode: 0o700 })
    mkdirSync(env.CUDA_MEMPOOL_SIMULATED, { mode: 0o700 })
    keeper = new Actor(['keeper', usualSocketPath()])
    assert.equal(await keeper.line(), 'listens')
    device = openDevice(new SimulatedDriver({ machine: env.CUDA_MEMPOOL_SIMULATED, capacityBytes: 64 * MiB }))
    const announced: object[] = []
    newPoolListeners.push(each => announced.push(each))
    keep = await openKeep(device)
    newPoolListeners.pop()
    assert.deepEqual(announced, [keep], 'so CUDA_MEMPOOL_SERVE=1 serves it')
  })
  beforeEach(() => {
    process.env['XDG_RUNTIME_DIR'] = folder // top.test.ts changes it before each test of this process
  })
  after(async () => {
    keep.close()
    device.close()
    await keeper.kill()
    if (runtime === undefined) delete process.env['XDG_RUNTIME_DIR']
    else process.env['XDG_RUNTIME_DIR'] = runtime
    rmSync(folder, { recursive: true })
  })

  /** What a command prints, in one line. */
  const printed = (...words: readonly string[]) =>
    execFileSync(process.execPath, [MAIN, ...words], { env, encoding: 'utf8' }).replace(/\s+/g, ' ')
  const info = () => printed('info', '--device', 'simulated')
  /** The figures once they have the keeper's answer to an earlier look. */
  async function told(list: PoolList, fits: (stats: ProcessStats) => boolean): Promise<ProcessStats> {
    for (;;) {
      const stats = statsOf(list)
      if (fits(stats)) return stats
      await keep.list() // the answer to the question of the figures comes no later
    }
  }

  it('is in the figures of a process that fills and reads it', async () => {
    const list = new PoolList('test', { keep })
    const filling = await keep.begin('weights', { bytes: BYTES, version: 'v1' })
    const own = { name: 'weights', version: 'v1', generation: filling.generation, bytes: BYTES }
    const begun = await told(list, ({ regions }) => regions.length > 0)
    assert.deepEqual([begun.regions[0].state, begun.regions[0].here, begun.pools], ['filling', 'filling', []])
    const [region] = await keep.commit([filling])
    const { regions } = await told(list, stats => stats.regions[0].state === 'ready' && stats.regions[0].readers === 1)
    const { lastUse, ...rest } = regions[0]
    assert.deepEqual(rest, { ...own, state: 'ready', device: device.properties.uuid, readers: 1, here: 'filled' })
    assert.deepEqual(regions.length, 1, 'once, though it is held and told')
    const labels = { region: 'weights', version: 'v1', state: 'ready', uuid: device.properties.uuid }
    const metrics = parseMetrics(prometheusText([keep]))
    const sampled = (name: string) => metrics.get(`cuda_mempool_region_${name}`)?.samples
    assert.deepEqual(sampled('bytes'), [{ labels, value: BYTES }])
    assert.deepEqual(sampled('readers'), [{ labels, value: 1 }])
    assert.deepEqual(sampled('last_use_timestamp_seconds'), [{ labels, value: lastUse! / 1000 }])
    region.close()
    await told(list, stats => stats.regions[0].readers === 0 && stats.regions[0].here === null)
  })

  it('without readers is named by the error of a full device, with the command that frees it', async () => {
    const named = /; 32 MiB are kept as 'weights', without readers: cuda-mempool keep prune --name weights$/
    const full = (error: unknown) => error instanceof OutOfMemoryError && named.test(error.message)
    const pool = device.createPool()
    // An answer of the keeper serves for a while, and a busy machine may not run the keeper in time.
    for (let tries = 0; ; tries++) {
      try {
        pool.allocate(48 * MiB)
      } catch (error) {
        if (full(error) || tries === 1000) break
      }
    }
    assert.throws(() => pool.allocate(48 * MiB), full)
    const plain = device.createPlainPool()
    const more = plain.allocate(16 * MiB)
    await assert.rejects(keep.begin('more', { bytes: 24 * MiB }), full)
    more.free()
    assert.throws(
      () => pool.allocate(GiB),
      (error: Error) => !/kept/.test(error.message),
      'a request that can never fit',
    )
    pool.close()
  })

  it('is summed up by info, and listed with a remedy', () => {
    const unused = '32 MiB in 1 region without readers, unused for \\d+ s; cuda-mempool keep prune --unused 1h frees '
    assert.match(
      info(),
      new RegExp(` kept: 32 MiB in 1 region, all of it on this device; .* keep list shows them unused: ${unused}`),
    )
    assert.match(printed('keep', 'list'), new RegExp(` weights v1 ready 32 MiB .* none .* ${unused}`))
    const json = JSON.parse(printed('info', '--json'))
    const since = json.kept.unused.since
    assert.deepEqual(json.kept, {
      bytes: BYTES,
      regions: 1,
      deviceBytes: BYTES,
      unused: { bytes: BYTES, regions: 1, since },
    })
    printed('keep', 'prune', '--all')
    assert.doesNotMatch(info(), / (kept|unused): /)
  })
})
