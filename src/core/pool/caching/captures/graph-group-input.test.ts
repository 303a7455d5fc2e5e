// Mistakes in the use of graph groups: one typed error each, and nothing changes.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { TestDevice } from '../../pool.fixture.js'
import { setUpGroup, writer } from './graph-group.fixture.js'
import type { GraphGroupOptions } from './graph-group.js'

describe('graph groups: bad input', () => {
  it('options are checked', () => {
    const { pool } = setUpGroup()
    const cases: [unknown, RegExp][] = [
      [{ whenUnordered: 'warn' }, /whenUnordered must be 'wait' or 'refuse', not 'warn'/],
      [{ maxBytes: 0 }, /createGraphGroup: maxBytes/],
      [{ maxBytes: 'much' }, /createGraphGroup: maxBytes/],
      [{ poison: 1 }, /createGraphGroup: poison must be true or false/],
      [{ max: 1 }, /createGraphGroup: unknown option 'max'/],
      [null, /createGraphGroup: options must be an object/],
    ]
    for (const [options, message] of cases) {
      assert.throws(() => pool.createGraphGroup(options as GraphGroupOptions), message)
    }
  })

  it('pools that serve no captures make no groups', () => {
    const device = new TestDevice()
    const refusal = { name: 'PoolError', message: /^createGraphGroup: the pool serves no captures/ }
    assert.throws(() => device.createPool({ debug: true }).createGraphGroup(), refusal)
    const blocks = device.createBlockPool({ blockBytes: 1 * MiB, count: 2 })
    assert.throws(() => blocks.createGraphGroup(), /^PoolError: createGraphGroup: a block pool makes no groups/)
  })

  it('one capture of a group at a time', () => {
    const { pool, group, a, b, c } = setUpGroup()
    const refusal = (call: string) => ({
      code: 'ERR_STREAM_CAPTURED',
      message: new RegExp(`^${call}: another capture of the group is under way`),
    })
    group.beginCapture(a)
    const scratch = pool.allocate(1 * MiB, a)
    assert.throws(() => group.beginCapture(b), refusal('beginCapture'))
    assert.throws(() => group.capture(b, () => {}), refusal('capture'))
    assert.throws(() => pool.beginCapture(b, { group }), refusal('beginCapture'))
    assert.throws(() => group.close(), /close: a capture of the group is under way/)
    const other = pool.createGraphGroup()
    other.beginCapture(b)
    assert.notEqual(pool.allocate(1 * MiB, b).ptr, scratch.ptr)
    b.endCapture().close()
    c.beginCapture()
    c.endCapture().close()
    scratch.free()
    a.endCapture()
    group.capture(b, () => {})
  })

  it('the stream of a capture is open, of this device, and no default stream', () => {
    const { device, group, a } = setUpGroup()
    const other = new TestDevice().createStream()
    assert.throws(() => group.beginCapture(other), { code: 'ERR_OTHER_DEVICE' })
    assert.throws(() => group.beginCapture(null as never), TypeError)
    assert.throws(() => group.beginCapture(device.defaultStream), /the default stream cannot be captured/)
    assert.throws(() => group.beginCapture(a, 'local' as never), /beginCapture: mode must be/)
    assert.throws(() => group.capture(a, () => {}, 'local' as never), /^TypeError: capture: mode must be/)
    assert.throws(() => group.capture(a, 5 as never), /capture: work must be a function/)
    assert.throws(() => group.capture(a, async () => {}), /capture: work must not be asynchronous/)
    a.close()
    assert.throws(() => group.beginCapture(a), { code: 'ERR_STREAM_CLOSED' })
    assert.equal(group.stats().graphs, 0)
  })

  it('outputs are allocated in a capture of their group', () => {
    const { pool, group, a, b } = setUpGroup()
    const refusal = /^PoolError: allocateOutput: the stream is not captured by this group/
    assert.throws(() => group.allocateOutput(100, a), refusal)
    const other = pool.createGraphGroup()
    group.beginCapture(a)
    assert.throws(() => group.allocateOutput(100, b), refusal)
    assert.throws(() => other.allocateOutput(100, a), refusal)
    assert.throws(() => group.allocateOutput(100, {} as never), TypeError)
    assert.throws(() => group.allocateOutput(0, a), RangeError)
    assert.throws(() => group.allocateOutput(100, a, 'mine' as never), /lifetime must be 'shared' or 'own', not 'mine'/)
    a.endCapture()
  })

  it('a group with open graphs is not closed, and a closed one does nothing more', () => {
    const { pool, group, a } = setUpGroup()
    const graph = writer({ pool, group }, a, 1)
    assert.throws(() => group.close(), { code: 'ERR_POOL_IN_USE', message: /^close: 1 graphs? of the group/ })
    graph.close()
    graph.close()
    group.close()
    group.close()
    assert.equal(String(group), 'GraphGroup { 0 graphs, closed }')
    assert.deepEqual(JSON.parse(JSON.stringify(group)).closed, true)
    const calls = {
      beginCapture: () => group.beginCapture(a),
      allocateOutput: () => group.allocateOutput(1, a),
      reserve: () => group.reserve(1),
      trim: () => group.trim(),
    }
    for (const [name, call] of Object.entries(calls)) {
      assert.throws(call, { code: 'ERR_POOL_CLOSED', message: `${name}: the graph group is closed; create another` })
    }
  })

  it('a capture of another library names a group of its pool', () => {
    const { device, pool, a } = setUpGroup()
    const group = device.createPool().createGraphGroup()
    assert.throws(() => pool.beginCapture(a, { group }), /^PoolError: beginCapture: the group is of another pool/)
    assert.throws(() => pool.beginCapture(a, { group: 1 as never }), /group must be a GraphGroup, not 1/)
    assert.throws(() => pool.beginCapture(a, { graph: group } as never), /unknown option 'graph'/)
    assert.equal(a.capture, null)
  })
})
