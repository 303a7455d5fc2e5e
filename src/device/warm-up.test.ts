// The tests run in this order, since a process warms up once.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { openDevice } from './open.js'
import { warmUpWhile } from './warm-up.js'

/** Warms up for at most `most` questions; returns the number of questions. */
function warmUp(most: number): number {
  let asked = 0
  warmUpWhile(() => asked++ < most)
  return asked
}

describe('the warm-up', () => {
  it('does nothing while somebody watches the pools of the process', () => {
    const messages: unknown[] = []
    const listener = (message: unknown) => messages.push(message)
    subscribe('cuda-mempool:grow', listener)
    try {
      assert.equal(warmUp(1000), 0)
    } finally {
      unsubscribe('cuda-mempool:grow', listener)
    }
    assert.deepEqual(messages, [])
  })

  it('ends when it is told to', () => {
    assert.equal(warmUp(0), 1)
    assert.ok(warmUp(5) <= 7)
  })

  it('leaves a device that is open as it was', () => {
    using device = openDevice('simulated')
    const pool = device.createPool()
    const buffer = pool.allocate(MiB)
    warmUp(5)
    buffer.fill(7)
    assert.deepEqual(buffer.readSync(0, 3), new Uint8Array([7, 7, 7]))
    assert.equal(pool.stats().liveBuffers, 1)
    buffer.free()
  })

  it('goes on where it ended, and ends for good when all is compiled', () => {
    assert.ok(warmUp(10_000) > 50)
    assert.equal(warmUp(10_000), 0)
  })

  it('makes V8 compile what an allocation runs that finds no cached block', () => {
    const module = JSON.stringify(new URL('warm-up.js', import.meta.url).href)
    const program = `import { warmUpWhile } from ${module}; warmUpWhile(() => true)`
    const flags = ['--trace-opt', '--no-concurrent-recompilation', '--input-type=module']
    const { stdout, stderr, status } = spawnSync(process.execPath, [...flags, '-e', program], { encoding: 'utf8' })
    assert.equal(status, 0, stderr)
    const compiled = new Set(
      [...stdout.matchAll(/completed (?:compiling|optimizing) \S+ <JSFunction (\w+)/g)].map(match => match[1]),
    )
    for (const name of ['allocate', 'takeBelow', 'takeMissed', 'releaseBlock', 'cuMemMap'])
      assert.ok(compiled.has(name), `${name} of ${[...compiled]}`)
  })
})
