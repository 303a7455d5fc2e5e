// The end of a `using` block never throws, so a program that fails shows its own error.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { spillable } from '../src/core/pool/wrappers/spillable.js'
import { failures } from './disposal.worker.js'

const PROGRAM = fileURLToPath(new URL('./disposal.worker.js', import.meta.url))

/** The warnings of the process while `work` runs. */
async function warningsOf(work: () => void): Promise<string[]> {
  const warnings: string[] = []
  const listener = ({ name, message }: Error) => name === 'PoolWarning' && warnings.push(message)
  process.on('warning', listener)
  work()
  await turn()
  process.off('warning', listener)
  return warnings
}

describe('a program that fails within a using block', () => {
  for (const name of Object.keys(failures)) {
    it(`shows its own error: ${name}`, () => {
      const { status, stderr } = spawnSync(process.execPath, [PROGRAM, name], { encoding: 'utf8', timeout: 60_000 })
      assert.match(stderr, new RegExp(`^Error: mine ${name}$`, 'm'))
      assert.doesNotMatch(stderr, /Suppressed/)
      assert.equal(status, 1)
    })
  }
})

describe('the end of a using block', () => {
  it('warns of a pool that cannot be closed, with the reason, and closes it once that is possible', async t => {
    t.mock.timers.enable({ apis: ['setInterval'] })
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const stream = device.createStream()
    const pool = device.createPool()
    pool.allocate(1000).label = 'weights'
    stream.beginCapture()
    const [warning, ...others] = await warningsOf(() => pool[Symbol.dispose]())
    assert.match(warning, /^the CachingPool was not closed at the end of its using block: .*is being captured/)
    assert.match(warning, /\. It is closed once that is possible$/)
    t.mock.timers.tick(1000)
    assert.deepEqual([others, pool.closed], [[], false])
    stream.abortCapture()
    const [held] = await warningsOf(() => t.mock.timers.tick(1000))
    assert.match(held, /1 buffer was held, 1000 B in all, among them 'weights', when their CachingPool was closed/)
    assert.equal(pool.closed, true)
    device.close()
    assert.equal(driver.usedBytes(), 0)
  })

  it('closes a shared pool when the last thread has left it', async t => {
    t.mock.timers.enable({ apis: ['setInterval'] })
    const device = openDevice('simulated')
    const pool = device.createSharedPool()
    const worker = new Worker(PROGRAM, { argv: ['attach'], workerData: pool.share() })
    await once(worker, 'message')
    const [warning] = await warningsOf(() => pool[Symbol.dispose]())
    assert.match(warning, /SharedPool was not closed .*: close: the pool is in use by 1 other thread/)
    worker.postMessage('leave')
    await once(worker, 'message')
    t.mock.timers.tick(1000)
    assert.equal(pool.closed, true)
    await worker.terminate()
    device.close()
  })

  it('warns of calls that a driver refuses, and does not repeat them', async t => {
    t.mock.timers.enable({ apis: ['setInterval'] })
    const driver = new SimulatedDriver()
    using device = openDevice(driver)
    const event = device.createEvent()
    driver.failCall({ call: 'cuEventDestroy', code: 999 })
    const warnings = await warningsOf(() => event[Symbol.dispose]())
    assert.match(warnings.join(), /^the Event was not closed .*: cuEventDestroy/)
    assert.deepEqual(await warningsOf(() => t.mock.timers.tick(5000)), [])
  })

  it('warns of buffers and sets that are in use', async () => {
    using device = openDevice('simulated')
    const host = device.createHostPool()
    const set = spillable(device.createPool(), { host })
    const buffer = set.allocate(100)
    const use = buffer.use()
    const warnings = await warningsOf(() => {
      buffer[Symbol.dispose]()
      set[Symbol.dispose]()
    })
    assert.equal(warnings.length, 2)
    for (const warning of warnings) assert.match(warning, /^the Spillable\w+ was not closed at the end/)
    use.free()
  })
})
