import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import { WarmUp } from '../src/core/device/warm-up.js'

/** Lets it go on `most` times; returns how often it asked. */
function questions(warmUp: WarmUp, most: number): number {
  let asked = 0
  warmUp.runWhile(() => asked++ < most)
  return asked
}

describe('the warm-up', () => {
  it('does nothing while the program listens to a channel of the pools', () => {
    const messages: unknown[] = []
    const listener = (message: unknown) => messages.push(message)
    subscribe('cuda-mempool:grow', listener)
    try {
      assert.equal(questions(new WarmUp(), 1000), 0)
    } finally {
      unsubscribe('cuda-mempool:grow', listener)
    }
    assert.deepEqual(messages, [])
  })

  it('ends when it is told to', () => {
    assert.equal(questions(new WarmUp(), 0), 1)
    assert.ok(questions(new WarmUp(), 5) <= 7)
  })

  it('leaves a device that is open as it was', () => {
    using device = openDevice('simulated')
    const pool = device.createPool()
    const buffer = pool.allocate(MiB)
    questions(new WarmUp(), 5)
    buffer.fill(7)
    assert.deepEqual(buffer.readSync(0, 3), new Uint8Array([7, 7, 7]))
    assert.equal(pool.stats().liveBuffers, 1)
    buffer.free()
  })

  it('goes on where it ended, and ends for good when all is compiled', () => {
    const warmUp = new WarmUp()
    const whole = questions(new WarmUp(), Infinity)
    const first = questions(warmUp, whole / 2)
    const rest = questions(warmUp, Infinity)
    assert.ok(rest > 0 && rest < whole, `${first}, then ${rest} of ${whole}`)
    assert.equal(questions(warmUp, Infinity), 0)
  })

  it('makes V8 compile what an allocation runs that finds no cached block', () => {
    const module = JSON.stringify(new URL('../src/core/device/warm-up.js', import.meta.url).href)
    const program = `import { WarmUp } from ${module}; new WarmUp().runWhile(() => true)`
    const flags = ['--trace-opt', '--no-concurrent-recompilation', '--input-type=module']
    const { stdout, stderr, status } = spawnSync(process.execPath, [...flags, '-e', program], { encoding: 'utf8' })
    assert.equal(status, 0, stderr)
    const compiled = new Set(
      [...stdout.matchAll(/completed (?:compiling|optimizing) \S+ <JSFunction (\w+)/g)].map(match => match[1]),
    )
    for (const name of ['allocate', 'takeBelow', 'takeMissed', 'releaseBlock', 'cuMemMap'])
      assert.ok(compiled.has(name), `${name} of ${[...compiled]}`)
  })

  // Code that never ran has no types: V8 discards what it compiled around it, and interprets that again.
  it('has run what a pool needs for recordings of one stream and of several', () => {
    const fileOf = (path: string) => fileURLToPath(new URL(path, import.meta.url))
    const recordings = ['gpt2-train-varlen', 'multistream-random'].map(name => fileOf(`../../traces/${name}.pickle.gz`))
    const args = [fileOf('warm-up-coverage.fixture.js'), ...recordings]
    const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8' })
    assert.equal(status, 0, stderr)
    assert.equal(stdout, '')
  })
})
