import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import { Context } from '../driver/context.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Clocks } from '../order/clocks.js'
import { Stream } from '../order/stream.js'
import { CachingPool } from '../pool/caching/caching-pool.js'
import { parsePoolOptions } from '../pool/caching/options.js'
import { tagged } from '../pool/wrappers/tagged.js'
import { WRAPPERS, type Wrap, wrapperSuite } from '../pool/wrappers/wrapper.suite.js'
import { parseSnapshot } from './pytorch/pytorch-snapshot.js'
import { pickleSnapshot } from './pytorch/pytorch-snapshot-writer.js'
import { recorded } from './recorder.js'
import { Action, framesOf, NEVER, type Trace } from './trace.js'

function openPool() {
  const driver = new SimulatedDriver()
  driver.cuInit()
  const clocks = new Clocks(Context.open(driver, 0))
  const stream = new Stream(clocks, 0, false)
  return new CachingPool(clocks, stream, parsePoolOptions({ maxPoolBytes: 8 * MiB }, 140 * 2 ** 30))
}

const eventsOf = (trace: Trace) =>
  Array.from({ length: trace.events }, (_, event) => [trace.action[event], trace.bytes[event], trace.block[event]])

test('allocations and frees of a pool become a trace', () => {
  const upstream = openPool()
  const pool = recorded(upstream)
  const first = pool.allocate(1000)
  const second = pool.allocate(2 * MiB)
  first.free()
  assert.equal(pool.tryAllocate(16 * MiB), null)
  assert.throws(() => pool.allocate(32 * MiB), OutOfMemoryError)
  const trace = pool.trace()
  assert.deepEqual(eventsOf(trace), [
    [Action.alloc, 1000, 0],
    [Action.alloc, 2 * MiB, 1],
    [Action.freeRequested, 1000, 0],
    [Action.freeCompleted, 1000, 0],
    [Action.outOfMemory, 16 * MiB, -1],
    [Action.outOfMemory, 32 * MiB, -1],
  ])
  assert.equal(trace.peakRequestedBytes, 2 * MiB + 1000)
  second.free()
  assert.throws(() => second.free(), { name: 'PoolError', message: /^free: the buffer was already freed/ })
  assert.equal(upstream.stats().liveBuffers, 0)
  assert.equal(pool.events, 8)
})

test('a recording stays the same as a PyTorch snapshot', () => {
  const pool = recorded(openPool(), { stacks: true })
  for (let round = 0; round < 3; round++) pool.allocate(4096 * (round + 1)).free()
  const trace = pool.trace()
  const read = parseSnapshot(pickleSnapshot(trace), 'again')
  assert.deepEqual(eventsOf(read), eventsOf(trace))
  const [innermost] = framesOf(read, 0)
  assert.match(innermost.filename, /recorder\.test\.js$/, 'the stack begins at the caller')
})

test('a failed request has its call stack, too', () => {
  const pool = recorded(openPool(), { stacks: true })
  assert.equal(pool.tryAllocate(16 * MiB), null)
  assert.throws(() => pool.allocate(32 * MiB), OutOfMemoryError)
  const trace = pool.trace()
  for (const event of [0, 1]) assert.match(framesOf(trace, event)[0].filename, /recorder\.test\.js$/)
})

test('a block has the size that the pool granted, and the tag of its scope', () => {
  const tags = tagged(openPool())
  const pool = recorded(tags)
  pool.allocate(1000)
  tags.inScope('weights', () => pool.allocate(300))
  for (const trace of [pool.trace(), parseSnapshot(pickleSnapshot(pool.trace()), 'again')]) {
    const { blocks, dropped, complete } = trace
    assert.deepEqual([...blocks.grantedBytes], [1024, 512])
    assert.deepEqual(
      [...blocks.tag].map(tag => trace.tags[tag]),
      ['', 'weights'],
    )
    assert.deepEqual([dropped, complete], [0, true])
  }
})

const recorder: Wrap = upstream => {
  const pool = recorded(upstream)
  const held = () => {
    const { blocks } = pool.trace()
    const live = blocks.bytes.filter((_, block) => blocks.freeCompletedAt[block] === NEVER)
    return { bytes: live.reduce((sum, bytes) => sum + bytes, 0), buffers: live.length }
  }
  return { pool, held }
}

wrapperSuite('recorded', [recorder])
wrapperSuite('recorded, in recorded', [recorder, recorder])
for (const [name, wrap] of Object.entries(WRAPPERS)) {
  wrapperSuite(`recorded, in ${name}`, [recorder, wrap])
  wrapperSuite(`${name}, in recorded`, [wrap, recorder])
}
